"""Compares features that a definition of pipelines/ computed with what is written here from the formulas.

    python3 tests/reference/compare_features.py xsf-descriptors data/xsf-descriptors aenet-xsf

The last argument is the folder that the definition read. NumPy is all that this needs beside the reader.
"""

import gzip
import itertools
import pathlib
import sys

import numpy as np

import rowmill_reader

SPECIES = {"Li": 3, "O": 8, "Ti": 22, "Ni": 28, "Mo": 42, "H": 1}
WEIGHTS = {3: -2.0, 22: -1.0, 28: 0.0, 42: 1.0, 8: 2.0}
RADIAL, ANGULAR, RADIAL_CUTOFF, ANGULAR_CUTOFF, NEAREST = 7, 4, 4.0, 3.0, 0.5


def structure(path):
    """Energy, cell, atomic numbers, positions and forces, the latter None where there are none."""
    lines = path.read_text().splitlines()
    energy = float(lines[0].split("=")[1].split()[0])
    cell = None
    if "PRIMVEC" in lines:
        at = lines.index("PRIMVEC")
        cell = np.array([line.split() for line in lines[at + 1 : at + 4]], float)
    atoms = [line.split() for line in lines if line.split() and line.split()[0] in SPECIES]
    numbers = np.array([atom[1:] for atom in atoms], float)
    forces = numbers[:, 3:] if numbers.shape[1] == 6 else None
    return energy, cell, np.array([SPECIES[atom[0]] for atom in atoms]), numbers[:, :3], forces


def features(cell, numbers, positions):
    """The sums over neighbours and pairs of neighbours of each atom, in float64."""
    images = np.zeros((1, 3))
    if cell is not None:
        images = np.array(list(itertools.product(range(-2, 3), repeat=3))) @ cell
    fade = lambda r, cutoff: (np.cos(np.pi * r / cutoff) + 1) / 2
    out = []
    for place in positions:
        vectors = (positions[:, None] + images - place).reshape(-1, 3)
        weights = np.repeat([WEIGHTS[n] for n in numbers], len(images))
        r = np.linalg.norm(vectors, axis=1)
        near = (r > NEAREST) & (r < RADIAL_CUTOFF)
        x = (2 * r[near] - NEAREST - RADIAL_CUTOFF) / (RADIAL_CUTOFF - NEAREST)
        t = np.cos(np.arange(RADIAL)[:, None] * np.arccos(x)) * fade(r[near], RADIAL_CUTOFF)
        radial = t.sum(1), (t * weights[near]).sum(1)
        near = (r > NEAREST) & (r < ANGULAR_CUTOFF)
        a, b = np.triu_indices(near.sum(), 1)
        v, r, w = vectors[near], r[near], weights[near]
        cosine = np.clip((v[a] * v[b]).sum(1) / r[a] / r[b], -1, 1)
        t = np.cos(np.arange(ANGULAR)[:, None] * np.arccos(cosine))
        t = t * fade(r[a], ANGULAR_CUTOFF) * fade(r[b], ANGULAR_CUTOFF)
        angular = t.sum(1), (t * w[a] * w[b]).sum(1)
        out.append(np.concatenate([radial[0], angular[0], radial[1], angular[1]]))
    return np.array(out)


def slopes(row, atom):
    """How the features of all atoms change with the place of `atom`, from what the row holds."""
    weights = np.array([WEIGHTS[n] for n in row["atomic_number"]])
    total = np.zeros((len(weights), 2 * (RADIAL + ANGULAR), 3))
    d, center, other = row["edge_d_neighbor"], row["edge_center"], row["edge_neighbor"]
    for indices, sign in ((other, 1), (center, -1)):
        at = indices == atom
        np.add.at(total[:, :RADIAL], center[at], sign * d[at])
        weighted = sign * d[at] * weights[other[at]][:, None, None]
        np.add.at(total[:, RADIAL + ANGULAR : -ANGULAR], center[at], weighted)
    center, j, k = row["triplet_center"], row["triplet_j"], row["triplet_k"]
    for indices, name in ((center, "center"), (j, "j"), (k, "k")):
        at = indices == atom
        d = row[f"triplet_d_{name}"][at]
        np.add.at(total[:, RADIAL : RADIAL + ANGULAR], center[at], d)
        weighted = d * (weights[j[at]] * weights[k[at]])[:, None, None]
        np.add.at(total[:, -ANGULAR:], center[at], weighted)
    return total


def xsf_descriptors(data, root):
    step, n_slopes = 1e-4, 0
    axes = {field.name: field.axis for field in data.fields if field.axis is not None}
    assert axes["edge_d_neighbor"] == "edges" and axes["triplet_d_k"] == "triplets", axes
    for number, row in enumerate(data.rows()):
        energy, cell, numbers, positions, forces = structure(root / row["path"])
        assert row["energy"] == energy and (row["cell"] is None) == (cell is None)
        assert (row["atomic_number"] == numbers).all() and (row["position"] == positions).all()
        want = features(cell, numbers, positions)
        assert np.abs(row["features"] - want).max() <= 1e-5 * np.abs(want).max(), row["path"]
        payload = [name for name in row if name.startswith(("edge_", "triplet_"))]
        if forces is None:
            assert row["force"] is None and all(row[name] is None for name in payload), row["path"]
            continue
        assert (row["force"] == forces).all()
        for name in payload:
            assert len(row[name]) == row["n_edges" if name.startswith("edge") else "n_triplets"], name
        if number % 9:
            continue
        for atom in (0, len(numbers) - 1):
            got = slopes(row, atom)
            for axis in range(3):
                moved = [positions.copy(), positions.copy()]
                moved[0][atom, axis] += step
                moved[1][atom, axis] -= step
                ahead, behind = (features(cell, numbers, places) for places in moved)
                difference = (ahead - behind) / (2 * step)
                assert np.abs(got[:, :, axis] - difference).max() < 1e-4 * np.abs(got).max() + 1e-6
                n_slopes += difference.size
    for shard in data.shards():
        for axis, count in (("edges", "n_edges"), ("triplets", "n_triplets")):
            offsets = np.fromfile(shard.path(f"{axis}.offsets.bin"), "<i8")
            there = shard[f"{axis[:-1]}_center"].valid == 1
            assert (np.diff(offsets)[there] == shard[count].values[there]).all()
    print(f"{n_slopes} derivatives agree with finite differences")


def fashion_mnist_features(data, root):
    with gzip.open(root / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), "u1", offset=16).reshape(-1, 28, 28)
    with gzip.open(root / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), "u1", offset=8)
    draw = np.random.RandomState(1)
    filters = draw.standard_normal((5, 5, 8)) / 5
    projection = draw.standard_normal((6, 6, 8, 64)) / np.sqrt(6 * 6 * 8)
    whole = lambda name: np.concatenate([shard[name].values for shard in data.shards()])
    got = whole("features")
    assert got.shape == (10_000, 64) and (whole("label") == labels).all()
    for start in (0, 9000):
        part = images[start : start + 1000] / 255
        made = np.zeros((1000, 24, 24, 8))
        for y, x in itertools.product(range(5), repeat=2):
            made += part[:, y : y + 24, x : x + 24, None] * filters[y, x]
        pooled = np.maximum(made, 0).reshape(-1, 6, 4, 6, 4, 8).mean((2, 4))
        want = np.einsum("nyxf,yxfw->nw", pooled, projection, optimize=True)
        assert np.abs(got[start : start + 1000] - want).max() < 1e-5
    # They are of use: pictures of one kind are nearer to each other than to those of others.
    centers = np.stack([got[:5000][labels[:5000] == label].mean(0) for label in range(10)])
    nearest = ((got[5000:, None] - centers) ** 2).sum(-1).argmin(1)
    accuracy = (nearest == labels[5000:]).mean()
    print(f"nearest class center: {accuracy:.3f}")
    assert accuracy > 0.5, accuracy


def main():
    name, dataset, root = sys.argv[1:]
    data = rowmill_reader.open(dataset)
    globals()[name.replace("-", "_")](data, pathlib.Path(root))
    print(f"{name}: {len(data)} rows agree")


if __name__ == "__main__":
    main()
