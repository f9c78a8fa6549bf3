"""docs/reliability.md publishes the matrix of faults as it is run."""

from tests.e2e.faults import FAULTS
from tests.e2e.matrices import BEGIN, END, PAGE


def test_the_page_has_measured_every_fault_of_the_matrix() -> None:
    measured = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]

    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in measured]

    assert [row[0].rpartition(", for ")[0] for row in cells] == [*FAULTS]
    assert [row[1:3] for row in cells] == [[fault.seen, fault.kept] for fault in FAULTS.values()]
