"""How a report looks."""

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 1000px; background: #fff; color: #202124;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans",
  sans-serif !important; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
.subtitle, .reading, figcaption, caption { color: #5f6368; }
.subtitle { margin: 0 0 1.25rem; }
.headline { margin: 0 0 .6rem; max-width: 52rem; }
.subtitle + .headline, .note + .headline { font-size: 1.1rem; }
.reading { font-size: .87rem; max-width: 52rem; }
.note { background: #fff8e1; border-left: 4px solid #E69F00; padding: .5rem .8rem; }
.facts { display: flex; flex-wrap: wrap; gap: .75rem 2.5rem; margin: 1.25rem 0 1.5rem; }
.facts dt { color: #5f6368; font-size: .82rem; }
.facts dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
.figures { display: grid; grid-template-columns: 1fr 1fr; gap: 1.75rem 24px; margin-top: 1.75rem; }
.wide { grid-column: 1 / -1; }
.tall { grid-row: span 2; }
@media (max-width: 800px) { .figures { grid-template-columns: minmax(0, 1fr); } }
.columns { display: flex; flex-wrap: wrap; gap: 1rem 4rem; }
figure { margin: 0; min-width: 0; }
figure svg { display: block; max-width: 100%; height: auto; }
figcaption { font-size: .82rem; line-height: 1.4; margin-top: .25rem; }
a { color: #0b57d0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: .82rem; padding-bottom: .35rem; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid #e8eaed;
  vertical-align: bottom; }
tbody th, tbody td { white-space: nowrap; }
thead th { color: #5f6368; font-weight: 500; border-bottom-color: #bdc1c6; }
tbody th { font-weight: 600; }
.swatch { display: inline-block; width: .7em; height: .7em; margin-right: .5em; }
details { margin-top: .8rem; }
summary { cursor: pointer; font-weight: 600; }
pre { background: #f5f6f7; padding: .6rem .8rem; overflow-x: auto; }
"""
