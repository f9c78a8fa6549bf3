"""Tables as CSV: nested fields, lists, and cells that spreadsheets would take for formulas."""

import csv
import io

from admission.api.kubernetes.meta import EPOCH
from admission.dashboard.documents import encoding
from admission.dashboard.documents.encoding import Listing, Record


class Row(Record, frozen=True, kw_only=True):
    """A row."""

    text: str
    amounts: dict[str, str]
    names: list[str]


class Rows(Listing, frozen=True, kw_only=True):
    """Rows."""

    items: list[Row]


def test_a_table_has_the_columns_of_all_rows_and_no_formula() -> None:
    rows = [
        Row(text="=1+1", amounts={"gpus": "-4"}, names=["a", "b"]),
        Row(text='say "no", twice\n', amounts={"cpus": "1.5"}, names=[]),
    ]
    made = Rows(cluster="east", at=EPOCH, total=2, items=rows)

    assert encoding.tables(made) == ["items"]
    assert list(csv.reader(io.StringIO(encoding.as_csv(made, "items").decode(), newline=""))) == [
        ["text", "amounts.gpus", "names", "amounts.cpus"],
        ["'=1+1", "-4", "a; b", ""],
        ['say "no", twice\n', "", "", "1.5"],
    ]
