"""Entries of Python hooks: what they may return, and what they must not do."""

import os
import sys
import time

import numpy as np
import pyarrow as pa

with open("starts.txt", "a") as starts:
    starts.write(f"{os.getpid()}\n")


class Tensor:
    """What a torch tensor on a GPU looks like from outside."""

    def __init__(self, array, place="gpu", needs_grad=True):
        self.array, self.place, self.needs_grad = array, place, needs_grad
        self.dtype = "torch.float32"

    def detach(self):
        return Tensor(self.array, self.place, False)

    def cpu(self):
        return Tensor(self.array, "cpu", self.needs_grad)

    def numpy(self):
        if self.place != "cpu" or self.needs_grad:
            raise TypeError("detach it and bring it here first")
        return self.array


class Brain:
    """Bfloat16, which NumPy has not."""

    dtype = "torch.bfloat16"

    def __init__(self, array):
        self.array = array

    def float(self):
        return Tensor(self.array, "cpu", False)


class Scaled:
    def __init__(self, factor, offset=0):
        self.factor, self.offset = factor, offset

    def __call__(self, batch):
        n = batch["n"].to_numpy()
        x = pa.array(n * self.factor + self.offset)
        return pa.RecordBatch.from_arrays([x], names=["x"])


def scaled(batch, factor):
    return batch["n"].to_numpy() * factor


def everything(batch):
    n = batch["n"].to_numpy()
    numbers = n.tolist()
    return {
        "tensor": Tensor(np.repeat(n, 2).reshape(-1, 2).astype("f4")),
        "brain": Brain(n.astype("f4") / 2),
        "cube": np.repeat(n, 6).reshape(-1, 2, 3).astype("u1"),
        "big_endian": n.astype(">i4"),
        "half": n.astype("f2"),
        "yes": n % 2 == 0,
        "masked": np.ma.MaskedArray(n, mask=n % 2 == 1),
        "list": [None if i == 1 else i for i in numbers],
        "pairs": [None if i == 2 else [i, i + 0.5] for i in numbers],
        "bag": [np.arange(i % 3, dtype="i2") for i in numbers],
        "grads": [None if i == 3 else np.full((i % 3, 2), i, "f4") for i in numbers],
        "lists": [list(range(i % 3)) for i in numbers],
        "text": [None if i == 0 else f"t{i}" for i in numbers],
        "words": np.array([f"w{i}" for i in numbers]),
        "raw": [bytes([i]) for i in numbers],
        "json": [{"n": np.int64(i), "of": [1, None]} for i in numbers],
        "arrow": pa.chunked_array([batch["n"].slice(0, 1), batch["n"].slice(1)]),
        "named": batch["text"].dictionary_encode(),
        "nothing": [None] * len(numbers),
    }


def table(batch):
    return pa.table({"x": batch["n"]})


def prints(batch):
    print("hello from the hook")
    os.system("echo hello from its child")
    return batch["n"]


def reads(batch):
    return [len(sys.stdin.read()) + len(os.read(0, 10)) + n for n in batch["n"].to_pylist()]


def raises(batch):
    for n in batch["n"].to_pylist():
        if n == 5:
            raise ValueError(f"no luck with {n}\nat {object()}")
        if n == 11:
            raise RuntimeError(object())
    return batch["n"]


def raises_always(batch):
    return batch["m"]


def breaks(batch):
    raise BrokenPipeError("its own pipe")


def exits(batch):
    if 5 in batch["n"].to_pylist():
        sys.exit(3)
    return batch["n"]


class Uncallable:
    pass


class Unready:
    def __init__(self):
        raise OSError("no weights")


def returns_nothing(batch):
    pass


def returns_two(batch):
    return batch["n"].to_numpy(), batch["n"].to_numpy()


async def returns_later(batch):
    return batch["n"]


def returns_number(batch):
    return 7


def too_few(batch):
    return batch["n"].to_numpy()[1:]


def other_type(batch):
    return batch["n"].to_numpy().astype("f4")


def other_shapes(batch):
    return {"x": [np.zeros(i % 2 + 1) for i in range(len(batch))]}


def mixed(batch):
    return {"x": [[1, 2], [[3]], "x", 4][: len(batch)]}


def changes_type(batch):
    n = batch["n"].to_numpy()
    return n if 5 not in n else n.astype("i4")


def other_name(batch):
    return {"y": batch["n"]}


def undeclared(batch):
    n = batch["n"].to_numpy()
    return {
        "x": n,
        "pair": np.repeat(n, 2).reshape(-1, 2).astype("f4"),
        "bag": [np.arange(i % 3, dtype="i2") for i in n],
        "word": [None if i == 1 else f"w{i}" for i in n],
        "of": [{"n": int(i)} for i in n],
    }


def changes_named(batch):
    return {"x": changes_type(batch)}


def adds_column(batch):
    n = batch["n"].to_numpy()
    return {"x": n, "y": n} if 5 in n else {"x": n}


def null_later(batch):
    return {"x": [None if n == 5 else n for n in batch["n"].to_pylist()]}


def nothing_at_first(batch):
    return {"x": [n if n > 5 else None for n in batch["n"].to_pylist()]}


def empty_lists_at_first(batch):
    return {"x": [[] if n < 4 else [n] for n in batch["n"].to_pylist()]}


def raises_at_first(batch):
    if batch["n"][0].as_py() < 4:
        raise ValueError("not yet")
    return {"x": batch["n"]}


def raises_named(batch):
    for n in batch["n"].to_pylist():
        if n in (1, 5):
            raise ValueError("no luck")
    return {"x": batch["n"]}


def exits_named(batch):
    if 1 in batch["n"].to_pylist():
        os._exit(3)
    return {"x": batch["n"]}


def logged(batch, of, by, name):
    """Which rows it was asked about stands in a file."""
    values = batch[of].to_pylist()
    with open(f"{name}.txt", "a") as log:
        log.write(",".join(map(str, values)) + "\n")
    if os.path.exists("hanging") and 4 in values:
        time.sleep(3600)
    return {name: [v * by for v in values], f"{name}_at": [None if v == 2 else v for v in values]}


def copies(batch):
    """None of an even number, three of an odd one."""
    odd = [i for i, n in enumerate(batch["n"].to_pylist()) if n % 2 == 1]
    parent = np.repeat(np.array(odd, "i8"), 3)
    n = batch["n"].to_numpy()[parent]
    return {"parent": parent, "copy": n * 10 + np.tile(np.arange(3), len(odd)), "even": n.astype("f4")}


def one_more(batch):
    return {"y": batch["copy"].to_numpy() + 1}


version = 3
