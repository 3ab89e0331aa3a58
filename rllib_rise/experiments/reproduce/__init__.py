"""The paper's figures and tables again: `rise reproduce TARGET`.

<out>/about.json    command, scale, versions, machine, date
<out>/*.csv         what was measured, a row per case or run
<out>/*.svg         the figures, made from these
"""
