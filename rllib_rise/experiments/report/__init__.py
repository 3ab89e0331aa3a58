"""One self-contained HTML page about runs or about a comparison, and the data of its figures.

<dir>/report.html          no scripts, nothing from the network
<dir>/report_data/*.csv    what each figure shows
"""

from rllib_rise.experiments.report.findings import headline
from rllib_rise.experiments.report.pages import write_report

__all__ = ["headline", "write_report"]
