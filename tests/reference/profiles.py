"""Composes profiles.parquet, the input of pipelines/signal-profiles.toml, from DNANet's test resources.

    python3 tests/reference/profiles.py dnanet-profiles/tests/resources profiles.parquet

The resources hold three profiles with annotations, a panel and a report of alleles. What a laboratory
has hundreds of is composed of them: profile i is one of the three, shifted along the scans by i, with the
panel and the report (of the samples of its own) as JSON. The scaler, which the resources lack, is a ramp.
Every tenth profile has no annotation.
"""

import csv
import json
import pathlib
import sys
import xml.etree.ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet

N_PROFILES = 325
PROFILES = ["profiles/RD/1A2_A01_01", "profiles/RD/1A2_E01_13", "profile_without_ladder/1A2_A01_01"]


def element(node):
    """An XML element as JSON."""
    out = dict(node.attrib)
    if node.text and node.text.strip():
        out["text"] = node.text.strip()
    for child in node:
        out.setdefault(child.tag, []).append(element(child))
    return out


def panel_json(resources):
    root = xml.etree.ElementTree.parse(resources / "panel.xml").getroot()
    return json.dumps(element(root), sort_keys=True)


def allele_json(resources, profile):
    """The report beside a profile, as one list per sample."""
    report = next((resources / profile).parent.glob("*AlleleReport.txt"))
    samples = {}
    with open(report, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            samples.setdefault(row["Sample Name"], []).append({k: v for k, v in row.items() if k and v})
    return json.dumps({profile: samples}, sort_keys=True)


def rows(resources):
    """Every profile as the row that is expected of it."""
    panel = panel_json(resources)
    alleles = {profile: allele_json(resources, profile) for profile in PROFILES}
    arrays = {}
    for profile in PROFILES:
        data = np.load(resources / f"{profile}.npy", allow_pickle=False)[:, :, 0]
        annotation = np.load(resources / f"{profile}_annotation.npy", allow_pickle=False)[:, :, 0]
        assert data.min() >= -2**15 and data.max() < 2**15 and set(np.unique(annotation)) <= {0, 1}
        arrays[profile] = data.astype("<i2"), annotation.astype("<i1")
    for i in range(N_PROFILES):
        profile = PROFILES[i % len(PROFILES)]
        data, annotation = arrays[profile]
        yield {
            "path": f"{profile}-{i:03}.hid",
            "data": np.roll(data, i, axis=1),
            "annotation": None if i % 10 == 9 else np.roll(annotation, i, axis=1),
            "scaler": np.linspace(60 + i / 100, 500, data.shape[1], dtype="<f4"),
            "panel": panel,
            "allele": alleles[profile],
            "meta_json": json.dumps({"number": i, "shift": i, "source": profile}, sort_keys=True),
        }


def arrays_of(name, composed, shape, data_type):
    values = [row[name] for row in composed]
    flat = np.concatenate([np.zeros(shape, data_type) if v is None else v for v in values], axis=None)
    column = pa.array(flat)
    for n in reversed(shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, n)
    mask = pa.array([v is None for v in values])
    return pa.FixedSizeListArray.from_arrays(column, shape[0], mask=mask)


def main():
    resources, target = pathlib.Path(sys.argv[1]), sys.argv[2]
    composed = list(rows(resources))
    text = lambda name: pa.array([row[name] for row in composed], pa.string())
    table = pa.table({
        "data": arrays_of("data", composed, (5, 4096), "<i2"),
        "annotation": arrays_of("annotation", composed, (5, 4096), "<i1"),
        "scaler": arrays_of("scaler", composed, (4096,), "<f4"),
        "path": text("path"),
        "panel": text("panel"),
        "allele": text("allele"),
        "meta_json": text("meta_json"),
    })
    pa.parquet.write_table(table, target, row_group_size=16)
    print(f"composed {len(composed)} profiles from {len(PROFILES)} real ones")


if __name__ == "__main__":
    main()
