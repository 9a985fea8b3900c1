"""Compares every value of a Rowmill dataset with the CSV files that it was made from.

    python3 tests/reference/compare_csv.py out/penguins penguins.csv NA

Python's csv module reads the files, the reader beside this file the dataset; the last argument is
the field that stands for no value.
"""

import csv
import sys

import rowmill_reader


def same(field, value, text, null):
    """Whether `value`, which was read from the dataset, is what `text` says."""
    if text == null:
        return value is None
    if isinstance(value, str):
        return value == text
    # What is categorical is stored as a position in a list.
    if field.categories:
        return field.categories[value] == text if isinstance(value, int) else value == text
    return value == type(value)(text)


def main():
    dataset, *tables, null = sys.argv[1:]
    data = rowmill_reader.open(dataset)
    names = [field.name for field in data.fields]
    rows = data.rows()
    n = 0
    for table in tables:
        with open(table, newline="", encoding="utf-8") as file:
            for record in csv.DictReader(file):
                row = next(rows)
                assert list(record) == names, (list(record), names)
                for field in data.fields:
                    value, text = row[field.name], record[field.name]
                    assert same(field, value, text, null), (table, n, field.name, value, text)
                n += 1
    assert next(rows, None) is None, "the dataset has more rows"
    print(f"{n} rows of {len(names)} fields agree")


if __name__ == "__main__":
    main()
