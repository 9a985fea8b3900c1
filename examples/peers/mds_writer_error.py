"""mosaicml-streaming: an exception at sample 57 of 100, inside `with MDSWriter`.

    pip install mosaicml-streaming==0.13.0
    python examples/peers/mds_writer_error.py OUT

Says how many samples the index that is left behind promises.
"""

import json
import pathlib
import sys

from streaming import MDSWriter


def main(out):
    try:
        with MDSWriter(out=out, columns={"n": "int"}) as writer:
            for n in range(100):
                if n == 57:
                    raise ValueError("a bad sample")
                writer.write({"n": n})
    except ValueError as error:
        print("the exception came through:", error)
    index = pathlib.Path(out) / "index.json"
    if not index.exists():
        print("no index was left behind")
        return
    shards = json.loads(index.read_text())["shards"]
    print("samples in the index that is left behind:", sum(shard["samples"] for shard in shards))


main(sys.argv[1])
