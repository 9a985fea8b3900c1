"""The reader against shards that Rowmill wrote.

ROWMILL_REFERENCE_SHARDS names a folder with a folder per case: `shards/<id>/`, `shards.json` (ids in
order) and `expected.arrow`, an Arrow IPC stream of the rows; or a dataset with its `current`, whose
field `x` counts the characters of `letters.txt`.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import pyarrow as pa
import pyarrow.ipc

import rowmill_reader as reader
import rowmill_verify
from rowmill_reader import FormatError

FOLDER = os.environ.get("ROWMILL_REFERENCE_SHARDS")


def cases():
    for name in sorted(os.listdir(FOLDER)):
        folder = os.path.join(FOLDER, name)
        if not os.path.exists(os.path.join(folder, "shards.json")):
            continue
        with open(os.path.join(folder, "shards.json"), "rb") as file:
            ids = json.load(file)
        yield name, folder, [os.path.join(folder, "shards", id_) for id_ in ids]


def datasets():
    folders = [os.path.join(FOLDER, name) for name in sorted(os.listdir(FOLDER))]
    return [folder for folder in folders if os.path.lexists(os.path.join(folder, "current"))]


def expected_rows(folder):
    with pa.OSFile(os.path.join(folder, "expected.arrow")) as file:
        return pa.ipc.open_stream(file).read_all()


def plain_arrow(field, scalar):
    """A value of an Arrow column as lists of numbers, strings and bytes."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.ExtensionScalar):
        scalar = scalar.value
    if isinstance(scalar, pa.StructScalar):
        shape = [n for n in scalar["shape"].as_py() if n >= 0]
        return shape, [plain_arrow(field, item) for item in scalar["data"].values]
    if isinstance(scalar, (pa.ListScalar, pa.LargeListScalar, pa.FixedSizeListScalar)):
        return [plain_arrow(field, item) for item in scalar.values]
    if isinstance(scalar, (pa.TimestampScalar, pa.DurationScalar, pa.Time64Scalar,
                           pa.Time32Scalar, pa.Date32Scalar)):
        return scalar.value
    if field.type == "bfloat16":
        return float(np.array([scalar.as_py() << 16], "<u4").view("<f4")[0])
    if pa.types.is_float16(scalar.type):
        return float(scalar.as_py())
    return scalar.as_py()


def plain(field, value):
    """A value of the reader in the same form."""
    if value is None:
        return None
    if field.kind == "free":
        array = np.asarray(value, dtype=value.dtype if isinstance(value, np.ndarray) else None)
        return list(array.shape), [plain_number(item) for item in array.reshape(-1)]
    return plain_number(value)


def plain_number(value):
    if isinstance(value, np.ndarray):
        return [plain_number(item) for item in value]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return int(value.view("<i8"))
    return value.item() if isinstance(value, np.generic) else value


class Reading(unittest.TestCase):
    def test_rows_are_those_that_were_written(self):
        for name, folder, paths in cases():
            table = expected_rows(folder)
            shards = [reader.Shard(path) for path in paths]
            self.assertEqual(sum(map(len, shards)), table.num_rows, name)
            if not shards:
                continue
            self.assertEqual([field.name for field in shards[0].fields], table.column_names, name)
            for at, field in enumerate(shards[0].fields):
                column = table.column(at)
                want = [plain_arrow(field, scalar) for scalar in column]
                got = [plain(field, shard[field.name][row]) for shard in shards for row in range(len(shard))]
                # As text, because there NaN is NaN and -0.0 is not 0.0.
                for row, (mine, theirs) in enumerate(zip(got, want)):
                    self.assertEqual(repr(mine), repr(theirs), f"{name}: {field.name!r}, row {row}")

    def test_keys_find_their_rows(self):
        for name, _, paths in cases():
            for path in paths:
                data = reader.open(path)
                if data.key is None:
                    continue
                for row in range(0, len(data), 7):
                    key = data.row(row)[data.key.name]
                    self.assertEqual(data.find(key), row, f"{name}: {key!r}")
                self.assertIsNone(data.find("no such key" if data.key.type else 1 << 40), name)

    def test_shards_verify(self):
        for name, _, paths in cases():
            for path in paths:
                self.assertEqual(rowmill_verify.verify(path), [], f"{name}: {path}")


class Datasets(unittest.TestCase):
    def test_rows_are_read_in_order_and_found_by_key(self):
        for folder in datasets():
            with open(os.path.join(folder, "letters.txt"), encoding="utf-8") as file:
                letters = file.read()
            key_folder = os.path.join(folder, os.readlink(os.path.join(folder, "current")))
            for path in (folder, key_folder):
                data = reader.open(path)
                self.assertGreater(len(data.shard_ids), 1)
                self.assertEqual("".join(chr(row["x"]) for row in data.rows()), letters)
                for row in range(len(data)):
                    self.assertEqual(data.find(data.row(row)["id"]), row)
                self.assertIsNone(data.find("no such key"))

    def test_datasets_verify(self):
        for folder in datasets():
            self.assertEqual(rowmill_verify.verify(folder), [])
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dump.py")
            run = [sys.executable, "-B", script, "--verify", folder]
            data = reader.open(folder)
            want = f"ok: {len(data)} rows in {len(data.shard_ids)} shards\n"
            self.assertEqual(subprocess.run(run, capture_output=True, text=True, check=True).stdout, want)

    def test_files_of_a_dataset_that_were_changed_are_found(self):
        for folder in datasets():
            with tempfile.TemporaryDirectory() as copy:
                key = os.readlink(os.path.join(folder, "current"))
                path = os.path.join(copy, key)
                shutil.copytree(os.path.join(folder, key), path, ignore=shutil.ignore_patterns("work"))
                self.assertEqual(rowmill_verify.verify(path), [])
                names = [name for name in os.listdir(path) if os.path.isfile(os.path.join(path, name))]
                names += [os.path.join("partitions", name) for name in os.listdir(os.path.join(path, "partitions"))]
                for name in names:
                    size = os.path.getsize(os.path.join(path, name))
                    for at in (0, size // 2, size - 1):
                        with flipped(os.path.join(path, name), at):
                            self.assertTrue(rowmill_verify.verify(path), f"{name}: byte {at}")


class Rejects(unittest.TestCase):
    def found(self, entries, to=None):
        facts = rowmill_verify.Facts()
        lines = [entry if isinstance(entry, bytes) else rowmill_verify.line(entry) for entry in entries]
        # Source rows 0 to 2 of the first input, two rows of source row 5, and row 0 of the second.
        runs = [(0, 0, 0, -1), (3, 0, 5, 0), (5, 1, 0, -1)]
        rowmill_verify.verify_rejects(facts, lines, 2, runs, 6, to)
        return [text.removeprefix("rejects.jsonl: line ") for text in facts.wrong]

    def test_what_is_wrong_with_rejects_is_found(self):
        def reject(source_row, path=(), stage="words", **more):
            base = {"code": "bad_word", "input": 0, "message": "größer", "path": list(path)}
            return {**base, "source_row": source_row, "stage": stage, **more}
        good = [reject(3), reject(5, [0]), reject(5, [3]), reject(5, [1], "numbers"), reject(7), reject(1, input=1)]
        self.assertEqual(self.found(good), [])
        self.assertEqual(self.found([]), [])
        for entries, wrong in [
            ([b"{"], ["1 is not a reject"]),
            ([reject(3, code="Bad word")], ["1 is not a reject"]),
            ([reject(3, code=7)], ["1 is not a reject"]),
            ([reject(-1)], ["1 is not a reject"]),
            ([reject(True)], ["1 is not a reject"]),
            ([reject(3, ["0"])], ["1 is not a reject"]),
            ([reject(3, stage="")], ["1 is not a reject"]),
            ([reject(3, input=2)], ["1 is not a reject"]),
            ([reject(3, more=1)], ["1 is not a reject"]),
            ([b" " + rowmill_verify.line(reject(3))], ["1 is not as Rowmill writes it"]),
            ([reject(4), reject(3)], ["2 comes before the one above it"]),
            ([reject(0, input=1, path=[1]), reject(9)], ["2 comes before the one above it"]),
            ([reject(3), reject(3)], ["2 is of a row that has become several"]),
            ([reject(3), reject(3, [1])], ["2 is of a row that was rejected whole"]),
            ([reject(5, [1]), reject(5, [1])], ["2: `path` does not go up"]),
            ([reject(2)], ["1 is of a row that is stored"]),
            ([reject(5)], ["1 is of a row that is stored"]),
            ([reject(0, input=1)], ["1 is of a row that is stored"]),
        ]:
            self.assertEqual(self.found(entries), wrong, entries)
        self.assertEqual(self.found([reject(7)], to=(0, 7)), [])
        self.assertEqual(self.found([reject(8)], to=(0, 7)), ["1 is of a row behind the shard"])


@contextlib.contextmanager
def flipped(path, at):
    """One byte of a file changed, for a while."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    yield
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes([byte]))


class Refusing(unittest.TestCase):
    """A copy of one shard, changed."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "shard")
        whole = next(path for _, _, paths in cases() for path in paths)
        shutil.copytree(whole, self.path)

    @contextlib.contextmanager
    def changed(self, name, change):
        file = os.path.join(self.path, name)
        with open(file, "rb") as stream:
            data = stream.read()
        with open(file, "wb") as stream:
            stream.write(change(data))
        try:
            yield
        finally:
            with open(file, "wb") as stream:
                stream.write(data)

    def assert_refused(self, name, change, message):
        with self.changed(name, change), self.assertRaisesRegex(FormatError, message):
            reader.open(self.path)

    def test_what_is_not_known_is_refused_by_name(self):
        def replace(old, new):
            return lambda data: data.replace(old, new, 1)
        for old, new, message in [
            (b'"layout": 1', b'"layout": 2', "unknown layout 2"),
            (b'"requires": []', b'"requires": ["holes"]', "lacks .*holes"),
            (b'"codec": "none"', b'"codec": "zstd"', "unknown codec 'zstd'"),
            (b'"kind": "', b'"kind": "super', "unknown kind 'super"),
            (b'"dtype": "', b'"dtype": "big', "unknown dtype 'big"),
            (b'"stem": "', b'"stem": "../', "bad stem"),
        ]:
            self.assert_refused("schema.json", replace(old, new), message)
        self.assert_refused("_COMPLETE", lambda _: b"{}", "")

    def test_files_that_do_not_fit_are_refused(self):
        for field in reader.Shard(self.path).fields:
            for name in field.files:
                if name == field.sidecar or not os.path.getsize(os.path.join(self.path, name)):
                    continue
                self.assert_refused(name, lambda data: data[:-1], "")
                self.assert_refused(name, lambda data: data + b"\0" * 8, "")

    def test_flipped_bytes_are_found(self):
        for name in sorted(os.listdir(self.path)):
            size = os.path.getsize(os.path.join(self.path, name))
            for at in {0, size // 2, size - 1} if size else ():
                def flip(data):
                    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]
                with self.changed(name, flip):
                    self.assertTrue(rowmill_verify.verify(self.path), f"{name}: byte {at}")
        self.assertEqual(rowmill_verify.verify(self.path), [])

    def test_files_that_come_or_go_are_found(self):
        notes = os.path.join(self.path, "notes")
        with open(notes, "wb"):
            pass
        self.assertEqual(rowmill_verify.verify(self.path), ["notes: unexpected"])
        os.remove(notes)
        os.remove(os.path.join(self.path, "rejects.jsonl"))
        self.assertEqual(rowmill_verify.verify(self.path), ["rejects.jsonl: missing"])


if __name__ == "__main__":
    if FOLDER is None:
        raise SystemExit("ROWMILL_REFERENCE_SHARDS names no folder")
    unittest.main()
