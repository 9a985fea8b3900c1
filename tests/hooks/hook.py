"""A hook that answers, and misbehaves on the row whose `n` is `bad`."""

import json
import os
import signal
import sys
import time

import pyarrow as pa

params = json.loads(os.environ["ROWMILL_PARAMS"])
bad, what = params.get("bad"), params.get("what")
# What it does on several rows, each in its own way.
bads = dict(params.get("bads", []))

pair = pa.list_(pa.float32(), 3 if what == "shape" else 2)
kind = pa.int32() if what == "dtype" else pa.int64()
schema = pa.schema([("double", kind), ("pair", pair), ("words", pa.list_(pa.int64())), ("seen", pa.string())])


def leave_a_daemon():
    """A process in a session of its own, with no parent and no variables."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "3600"], {})
        os._exit(0)
    os.wait()


def misbehave(batch, what):
    if what == "exit0":
        os._exit(0)
    if what == "exit1":
        print("no such luck", file=sys.stderr, flush=True)
        os._exit(1)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(3600)
    if what == "leak":
        kept = []
        while True:
            kept.append(b"x" * (4 << 20))
            time.sleep(0.005)
    if what == "fork":
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(3)
    if what == "daemon":
        leave_a_daemon()
        os._exit(4)
    if what == "garbage":
        sys.stdout.buffer.write(b"here is your answer\n" * 4)
        sys.stdout.buffer.flush()
        time.sleep(3600)
    if what in ("flood", "shout"):
        for _ in range(20000):
            sys.stderr.write("x" * 99 + "\n")
    if what == "shout":
        print("no such luck", file=sys.stderr, flush=True)
        os._exit(1)
    if what == "closes":
        os.close(0)
        time.sleep(3600)
    if what == "few":
        return batch.slice(1)
    if what == "many":
        return pa.concat_batches([batch, batch.slice(0, 1)])
    return batch


def rows_in(file):
    """The rows that a file names, which is there only while the hook is to fail on them."""
    return [int(n) for n in open(file).read().split()] if os.path.exists(file) else []


if params.get("groups"):
    group = open("/proc/self/cgroup").read().strip()
    limit = "/sys/fs/cgroup" + group.removeprefix("0::") + "/memory.max"
    limit = open(limit).read() if os.path.exists(limit) else "none"
    with open("groups.txt", "a") as log:
        log.write(f"{group} {limit.strip()}\n")
reader = pa.ipc.open_stream(sys.stdin.buffer)
writer = pa.ipc.new_stream(sys.stdout.buffer, schema)
late = lagging = None
for batch, metadata in reader.iter_batches_with_custom_metadata():
    number = metadata["rowmill:batch"].decode()
    if what == "other":
        number = int(number) + 1
    told = {"rowmill:batch": str(number)} if params.get("numbers") else None
    if what in ("log", "files") or params.get("log"):
        with open("calls.txt", "a") as log:
            log.write(",".join(str(n) for n in batch.column("n").to_pylist()) + "\n")
    numbers = batch.column("n").to_pylist()
    if what == "files" and set(numbers) & set(rows_in("broken")):
        os._exit(1)
    if what == "files" and set(numbers) & set(rows_in("hanging")):
        time.sleep(3600)
    for n in sorted(bads.keys() & set(numbers)):
        misbehave(batch, bads[n])
    if what == "stays":
        leave_a_daemon()
    if bad in numbers:
        batch = misbehave(batch, what)
        numbers = batch.column("n").to_pylist()
    width = 3 if what == "shape" else 2
    columns = [
        pa.array([2 * n for n in numbers], kind),
        pa.array([None if what == "null" and n == bad else [n] * width for n in numbers], pair),
        pa.array([list(range(n % 3)) for n in numbers], pa.list_(pa.int64())),
        # What a row gets depends on the batch that it came in.
        pa.array([str(n) for n in numbers] if params.get("alone") else ["-".join(str(n) for n in numbers)] * len(numbers)),
    ]
    if what == "nan":
        columns[1] = pa.array([[float("nan") if n == bad else n] * 2 for n in numbers], pair)
    answer = pa.record_batch(columns, schema=schema)
    if late is not None:
        # Where the answer to this batch is expected, a second one to the batch before.
        writer.write_batch(late[0], custom_metadata=late[1])
        late = None
    if what == "lags" and not os.path.exists("mended"):
        # The first answer twice, and from then on that to the batch before.
        answer, lagging = lagging or answer, answer
    writer.write_batch(answer, custom_metadata=told)
    if what == "twice":
        writer.write_batch(answer, custom_metadata=told)
    if what == "late" and bad in numbers:
        late = answer, told
    sys.stdout.buffer.flush()
if what == "one more" or lagging:
    writer.write_batch(lagging or answer)
if what == "ends":
    writer.close()
if what in ("prints", "ends"):
    sys.stdout.buffer.write(b"done\n" * 80000)
if what == "begins":
    # How long a message is, of which nothing follows.
    sys.stdout.buffer.write(b"\xff\xff\xff\xff@")
sys.stdout.buffer.flush()
