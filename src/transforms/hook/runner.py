"""Runs a Python hook of Rowmill: calls the entry with each batch that stdin brings and writes what it
returns to stdout, both as Arrow IPC streams.

What the entry may return: a RecordBatch or Table, a mapping of column names to values, or, where one
column is declared, its values. Values are an Arrow array, anything that NumPy takes for an array (a
torch tensor too), or a list with one item per row: numbers, texts, bytes, None, arrays, or what becomes
JSON. An array of n dimensions is a column of arrays of n - 1; a list of arrays, a ragged column.

An answer has the number of its batch in the metadata of its message. Instead of an answer it may write a
notice: four bytes that begin no message of a stream, the length of what follows, and JSON that says what
went wrong.

Its arguments are the files that decide what the entry computes. Modules of the working folder that come from
other files are refused before anything is answered.
"""

import sys

sys.path[:] = [folder for folder in sys.path if folder]

import functools
import importlib
import importlib.util
import json
import os
import re
import struct
import sysconfig
import traceback
import types
from collections.abc import Mapping

MARK = b"\xfe\xff\xff\xff"
NUMBER = "rowmill:batch"
NEEDS = "needs pyarrow 15 or later and NumPy: install them there, or let `python` name an interpreter that has them"
RENAMED = "rowmill_entry_"
MAY_RETURN = "return a RecordBatch, a dict of arrays, or, where one column is declared, an array"
JSON_FIELD = {"ARROW:extension:name": "arrow.json"}


class Misfit(Exception):
    """The answer is not what it should be, whatever the rows."""

    def __init__(self, what, more):
        super().__init__(what)
        self.what, self.more = what, more


class Undefined(Exception):
    """The definition names what is not there."""

    def __init__(self, what, more):
        super().__init__(what)
        self.what, self.more = what, more


class Files:
    """The files that are known to decide what the entry computes."""

    def __init__(self, known):
        self.folder = os.path.realpath(".")
        self.known = {os.path.realpath(file) for file in known}
        self.seen = set()
        places = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()]
        places = {os.path.realpath(place) for place in places}
        # An interpreter within the folder; one around it says nothing of what is in it.
        self.foreign = [place for place in places if is_below(place, self.folder)]

    def unknown(self):
        """The files of the folder that modules were loaded from since the last call and that are not known,
        each with the name of its module."""
        loaded = dict(sys.modules)
        new = loaded.keys() - self.seen
        self.seen |= new
        found = {}
        for name in sorted(new):
            file = file_of(loaded[name])
            if file is None:
                continue
            file = os.path.abspath(file)
            real = os.path.realpath(file)
            inside = next((path for path in (file, real) if is_below(path, self.folder)), None)
            if inside is None or real in self.known or any(is_below(real, place) for place in self.foreign):
                continue
            inside = os.path.relpath(inside, self.folder)
            if not {"site-packages", "dist-packages"} & set(inside.split(os.sep)):
                found.setdefault(inside, name.replace(RENAMED, "", 1))
        return sorted(found.items())

    def are_complete(self, answers):
        """Whether all is known that was loaded; says what is not."""
        unknown = self.unknown()
        if not unknown:
            return True
        file, module = unknown[0]
        what = f"it has loaded `{file}` (module `{module}`), which is not among its `files`"
        if len(unknown) > 1:
            what += f"; nor {'is' if len(unknown) == 2 else 'are'} {len(unknown) - 1} more"
        names = ", ".join(json.dumps(file, ensure_ascii=False) for file, _ in unknown[:50])
        if len(unknown) > 50:
            names += ", …"
        more = f"what is imported decides what is answered: add {names} to `files`"
        answers.tell("definition", what, more)
        return False


def is_below(path, folder):
    return path.startswith(os.path.join(folder, ""))


def file_of(module):
    """The file that a module was loaded from, asked of no module that loads when it is asked."""
    try:
        facts = object.__getattribute__(module, "__dict__")
        file, archive = facts.get("__file__"), getattr(facts.get("__loader__"), "archive", None)
    except Exception:
        return None
    return next((text for text in (archive, file) if isinstance(text, str)), None)


class Answers:
    """Where answers go. What anybody else prints goes to stderr."""

    def __init__(self):
        self.pipe = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        sys.stdout.reconfigure(line_buffering=True)
        self.schema = None

    def send(self, batch, number):
        if self.schema is None or not batch.schema.equals(self.schema, check_metadata=True):
            # The stream of before does not end: the new schema stands in its midst.
            self.schema, self.sink = batch.schema, pa.PythonFile(self.pipe, mode="w")
            self.stream = pa.ipc.new_stream(self.sink, batch.schema)
        self.stream.write_batch(batch, custom_metadata={NUMBER: number})
        self.pipe.flush()

    def tell(self, kind, what, more, number=None):
        notice = {"kind": kind, "what": what, "more": more}
        if number is not None:
            notice["batch"] = number.decode()
        notice = json.dumps(notice).encode()
        self.pipe.write(MARK + struct.pack("<I", len(notice)) + notice)
        self.pipe.flush()


def named(error):
    """An exception in one line that is the same in every process."""
    text = re.sub(r"\b0x[0-9a-f]{6,}", "0x…", str(error).strip()).split("\n")[0]
    if len(text) > 300:
        text = text[:300] + "…"
    name = type(error).__qualname__
    return f"{name}: {text}" if text else name


def traced(error):
    """A traceback without the frames of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals is globals():
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def imported(module):
    """The module of this name in the working directory, whatever else has that name."""
    top, _, rest = module.partition(".")
    folder = os.path.realpath(top)
    files = [os.path.join(folder, "__init__.py"), folder + ".py"]
    file = next(filter(os.path.isfile, files), None)
    loaded = sys.modules.get(top)
    found = getattr(loaded, "__spec__", None) if loaded else importlib.util.find_spec(top)
    places = [found.origin, *(found.submodule_search_locations or [])] if found else []
    is_here = any(os.path.realpath(place) == (file or folder) for place in places if place)
    if not is_here:
        # Whoever has the name keeps it: others may import it.
        top = RENAMED + top
        if file is None:
            loaded = types.ModuleType(top)
            loaded.__path__ = [folder]
            sys.modules[top] = loaded
        else:
            inner = [folder] if file == files[0] else None
            spec = importlib.util.spec_from_file_location(top, file, submodule_search_locations=inner)
            sys.modules[top] = loaded = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
    return importlib.import_module(f"{top}.{rest}" if rest else top)


def load(entry, params):
    """What is called with each batch."""
    module, _, path = entry.partition(":")
    target, place = imported(module), module
    for name in path.split("."):
        if not hasattr(target, name):
            raise Undefined(f"there is no `{name}` in `{place}`, as `entry` has it", others(target, name))
        target, place = getattr(target, name), f"{place}.{name}"
    if isinstance(target, type):
        target = target(**params)
        if not callable(target):
            raise TypeError(f"{path} has no __call__(batch)")
        return target
    if not callable(target):
        raise Undefined(f"`{path}`, as `entry` has it, is neither a class nor a function", "name one of them")
    return functools.partial(target, **params) if params else target


def others(target, name):
    """What may have been meant by a name that is not there."""
    import difflib

    known = [other for other, it in sorted(getattr(target, "__dict__", {}).items()) if callable(it) and other[0] != "_"]
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"did you mean `{near[0]}`?"
    known = ", ".join(f"`{other}`" for other in known[:20])
    return f"there are {known}" if known else "there is no class and no function"


def rows(n):
    return "1 row" if n == 1 else f"{n} rows"


def as_batch(answer, n_rows, declared):
    """What the entry returned, as a RecordBatch; of `n_rows` rows, unless that is None."""
    if isinstance(answer, (pa.RecordBatch, pa.Table)):
        fields = {field.name: field for field in answer.schema}
        if len(fields) < len(answer.schema):
            raise Misfit("it answered with two columns of one name", "give each its own")
        columns = {name: answer.column(name) for name in fields}
    elif isinstance(answer, Mapping):
        fields, columns = {}, dict(answer)
    elif declared is not None and len(declared) == 1 and not isinstance(answer, (tuple, type(None))):
        fields, columns = {}, {next(iter(declared)): answer}
    else:
        raise Misfit(f"it returned {type(answer).__qualname__}, which is no table", MAY_RETURN)
    made = []
    for name, values in columns.items():
        if not isinstance(name, str):
            raise Misfit(f"it answered with a column that is called {name!r}", "names are texts")
        is_parent = n_rows is None and name == "parent"
        of_name = {"dtype": "int64"} if is_parent else (declared or {}).get(name, {})
        column, metadata = as_column(name, values, of_name)
        if n_rows is None and made and len(column) != len(made[0][1]):
            what = f"it answered with {rows(len(column))} in column `{name}`, and {len(made[0][1])} before"
            raise Misfit(what, "all columns of an answer have as many rows")
        if n_rows is not None and len(column) != n_rows:
            what = f"it was sent {rows(n_rows)} and answered with {len(column)} in column `{name}`"
            raise Misfit(what, "a hook answers with one row for each that it is sent")
        if name in fields:
            metadata = fields[name].metadata
        made.append((pa.field(name, column.type, metadata=metadata), column))
    schema = pa.schema([field for field, _ in made])
    if not made:
        raise Misfit("it answered with no column", MAY_RETURN)
    return pa.RecordBatch.from_arrays([column for _, column in made], schema=schema)


def as_column(name, values, declared):
    """The values of a column as an Arrow array, and the metadata of its field."""
    try:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            return of_arrow(values)
        is_json = declared.get("dtype") == "json"
        if isinstance(values, (list, tuple)) or is_json:
            return of_items(list(values), declared, is_json)
        array = as_array(values)
        if array.ndim == 0 and array.dtype.kind == "O":
            raise TypeError(f"{type(values).__qualname__} is no array")
        return of_array(array, declared)
    except Misfit:
        raise
    except Exception as error:
        what = f"column `{name}` cannot become Arrow: {named(error)}"
        more = "a column is an array, or a list of numbers, texts, arrays of one type, or None"
        raise Misfit(what, more) from error


def of_arrow(values):
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if isinstance(values.type, pa.FixedShapeTensorType):
        return of_array(values.to_numpy_ndarray(), {})
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values, None


def as_array(values):
    """A NumPy array; a tensor comes from wherever it is."""
    for step in ("detach", "cpu"):
        values = getattr(values, step, lambda values=values: values)()
    if "bfloat16" in str(getattr(values, "dtype", "")) and hasattr(values, "float"):
        values = values.float()
    if not hasattr(values, "__array__") and hasattr(values, "numpy"):
        values = values.numpy()
    array = np.asanyarray(values)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def of_array(array, declared):
    """A row for each index of the first axis."""
    if array.ndim == 0:
        raise ValueError("it is a single value")
    if array.dtype.kind in "OUS":
        return of_items(list(array) if array.ndim > 1 else array.tolist(), declared, False)
    if declared.get("kind") == "ragged" and array.ndim > 1:
        return of_items(list(array), declared, False)
    absent = None
    if isinstance(array, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(array).reshape(len(array), -1)
        absent = mask.all(axis=1) & (mask.shape[1] > 0)
        if (mask.any(axis=1) != absent).any():
            raise ValueError("a part of a row is masked")
        array = array.data
    return nested(array, absent), None


def nested(array, absent=None):
    """An Arrow column of arrays of one shape; those that are absent are null."""
    if array.dtype.kind not in "biufMm":
        raise TypeError(f"there is no column of {array.dtype}")
    if array.ndim == 1:
        return pa.array(array, mask=absent)
    column = pa.array(np.ascontiguousarray(array).reshape(-1))
    for axis in range(array.ndim - 1, 0, -1):
        mask = pa.array(absent) if absent is not None and axis == 1 else None
        column = pa.FixedSizeListArray.from_arrays(column, array.shape[axis], mask=mask)
    return column


def of_items(items, declared, is_json):
    """One item per row."""
    there = [item for item in items if item is not None]
    first = there[0] if there else None
    if is_json or isinstance(first, Mapping):
        texts = [x if x is None or isinstance(x, str) else as_json(x) for x in items]
        return pa.array(texts, pa.large_string()), JSON_FIELD
    if isinstance(first, (str, bytes, bytearray, memoryview)):
        kind = pa.large_string() if isinstance(first, str) else pa.large_binary()
        return pa.array(items, kind), None
    dtype = DTYPES.get(declared.get("dtype"))
    if first is None:
        return pa.nulls(len(items), arrow_type(declared)), None
    if "dtype" not in declared and all(isinstance(x, (list, tuple)) and np.size(x) == 0 for x in there):
        # Lists without entries tell no type.
        return pa.nulls(len(items)), None
    arrays = [None if item is None else as_item(item, dtype) for item in items]
    shapes = {array.shape for array in arrays if array is not None}
    absent = np.array([item is None for item in items]) if len(there) < len(items) else None
    if shapes == {()} or declared.get("kind") == "fixed":
        if len(shapes) > 1:
            raise ValueError(f"rows have shapes {', '.join(map(str, sorted(shapes)))}")
        blank = np.zeros_like(next(array for array in arrays if array is not None))
        return nested(np.stack([blank if a is None else a for a in arrays]), absent), None
    return ragged(arrays, absent, declared, dtype), None


def as_item(item, dtype):
    """A row's value; numbers of Python take the type that is declared."""
    if isinstance(item, (list, tuple)) or type(item) in (int, float, bool):
        array = np.asarray(item)
        if array.size == 0:
            return array.astype(dtype) if dtype is not None else array.astype(EMPTY)
        if dtype is not None and array.dtype != dtype:
            cast = array.astype(dtype)
            if array.dtype.kind in "biu" or np.dtype(dtype).kind == "f":
                if np.dtype(dtype).kind == "f" or (cast == array).all():
                    return cast
        return array
    return as_array(item)


def ragged(arrays, absent, declared, dtype):
    """An Arrow column of arrays whose first dimension varies."""
    there = [array for array in arrays if array is not None]
    full = [array for array in there if array.size]
    # A list of Python without entries tells neither type nor shape.
    telling = full or [array for array in there if array.ndim > 1]
    shape = telling[0].shape[1:] if telling else tuple(declared.get("shape", ()))
    kind = full[0].dtype if full else dtype if dtype is not None else there[0].dtype
    blank = np.zeros((0, *shape), kind)
    parts = [blank if array is None or not array.size else array for array in arrays]
    if any(part.shape[1:] != shape or part.dtype != kind for part in parts):
        raise ValueError("entries of its rows have several types or shapes")
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    values = nested(np.concatenate(parts))
    mask = None if absent is None else pa.array(absent)
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, mask=mask)


def as_json(value):
    def plain(value):
        return value.item() if isinstance(value, np.generic) else as_array(value).tolist()

    return json.dumps(value, default=plain, ensure_ascii=False, allow_nan=False)


def arrow_type(declared):
    """The type of a column that has no value."""
    name = declared.get("dtype")
    kind = {"utf8": pa.large_string(), "json": pa.large_string(), "binary": pa.large_binary()}.get(name)
    if kind is None:
        kind = pa.from_numpy_dtype(DTYPES[name]) if name in DTYPES else pa.null()
    for n in reversed(declared.get("shape", [])):
        kind = pa.list_(kind, n)
    return pa.large_list(kind) if declared.get("kind") == "ragged" else kind


def main():
    # Whoever reads stdin finds it empty: the batches are ours.
    questions = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    answers = Answers()
    global np, pa, DTYPES, EMPTY
    try:
        import numpy as np
        import pyarrow as pa

        if int(pa.__version__.split(".")[0]) < 15:
            raise ImportError(f"pyarrow is {pa.__version__}")
    except ImportError as error:
        answers.tell("setup", f"`{sys.executable}`: {named(error)}", f"it {NEEDS}")
        return 1
    numbers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    DTYPES = {name: np.dtype(name) for name in ["bool", "float16", "float32", "float64", *numbers]}
    EMPTY = np.dtype(float)
    entry, params = os.environ["ROWMILL_ENTRY"], json.loads(os.environ["ROWMILL_PARAMS"])
    declared = json.loads(os.environ.get("ROWMILL_OUTPUT", "null"))
    sys.path.insert(0, os.getcwd())
    # Without arguments anything may be loaded.
    files = Files(sys.argv[1:]) if sys.argv[1:] else None
    del sys.argv[1:]
    try:
        hook = load(entry, params)
    except Undefined as undefined:
        answers.tell("definition", undefined.what, undefined.more)
        return 1
    except (Exception, SystemExit) as error:
        traceback.print_exception(error)
        what = f"`{entry}` cannot be loaded: {named(error)}"
        answers.tell("setup", what, f"with `{sys.executable}`:\n{traced(error).strip()}")
        return 1
    if files and not files.are_complete(answers):
        return 1
    is_any = os.environ.get("ROWMILL_CARDINALITY") == "any"
    for batch, metadata in pa.ipc.open_stream(questions).iter_batches_with_custom_metadata():
        number = metadata[NUMBER]
        try:
            came = as_batch(hook(batch), None if is_any else batch.num_rows, declared)
        except Exception as error:
            came = error
        except SystemExit:
            # It ends the process as it wants to, unless what made it do so is unknown.
            if files and not files.are_complete(answers):
                return 1
            raise
        if files and not files.are_complete(answers):
            return 1
        if isinstance(came, Misfit):
            answers.tell("misfit", came.what, came.more, number)
        elif isinstance(came, Exception):
            trace = traced(came).strip()
            print(trace, file=sys.stderr, flush=True)
            more = "\n".join(trace.split("\n")[-12:])
            answers.tell("raised", f"it raised {named(came)}", more, number)
        else:
            try:
                answers.send(came, number)
            except BrokenPipeError:
                return 1
        # Nothing of this batch is held while the next one is computed.
        came = None
        sys.stdout.flush()
    return 0


sys.exit(main())
