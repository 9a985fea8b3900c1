"""Chebyshev descriptors of atomic structures, with their derivatives.

Structures come in as the text of XSF files, out come atoms, one row of features per atom, and for
structures with forces how each feature of an atom changes with the places of its neighbours: per edge
(atom and neighbour) by the neighbour's place, for the atom's own it is the negative; per triplet (atom
and two neighbours) by the places of all three. Derivatives are those of the unweighted sums; those of
the weighted ones are the same times the weights. NumPy is all it needs.

The radial features of an atom are sums over its neighbours j of T_a(x(r_ij)) f(r_ij), the angular ones sums
over its pairs of neighbours j < k of T_a(cos t_ijk) f(r_ij) f(r_ik); T_a are Chebyshev polynomials
of the first kind, x maps distances to [-1, 1] and f = (cos(pi r / cutoff) + 1) / 2 lets contributions fade.
With several species each sum stands twice, the second time weighted by species. After N. Artrith,
A. Urban and G. Ceder, Phys. Rev. B 96, 014112 (2017).
"""

import numpy as np

SYMBOLS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr "
    "Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm "
    "Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn"
).split()
NUMBERS = {symbol: n for n, symbol in enumerate(SYMBOLS, 1)}


def parse_xsf(text):
    """Reads one structure: energy in eV, cell (3, 3) in Å or None, species, positions (n, 3) in Å, and
    forces (n, 3) in eV/Å or None."""
    lines = text.splitlines()
    energy, cell, atoms, at = None, None, None, 0
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if line.startswith("#") and "total energy" in line:
            energy = float(line.split("=")[1].split()[0])
        elif line == "PRIMVEC":
            cell = np.array([lines[at + i].split() for i in range(3)], float)
            at += 3
        elif line == "PRIMCOORD":
            n = int(lines[at].split()[0])
            atoms = [row.split() for row in lines[at + 1 : at + 1 + n]]
            if len(atoms) != n:
                raise ValueError(f"{n} atoms are announced, {len(atoms)} are there")
            at += 1 + n
        elif line == "ATOMS":
            atoms = []
            while at < len(lines) and lines[at].strip():
                atoms.append(lines[at].split())
                at += 1
        elif line.startswith("ANIMSTEPS"):
            raise ValueError("the file has several structures")
    if not atoms:
        raise ValueError("there are no atoms")
    width = {len(atom) for atom in atoms}
    if width not in ({4}, {7}):
        raise ValueError("an atom has a symbol, three coordinates, and three forces or none")
    species = [atom[0] if atom[0] in NUMBERS else SYMBOLS[int(atom[0]) - 1] for atom in atoms]
    numbers = np.array([atom[1:] for atom in atoms], float)
    forces = numbers[:, 3:] if width == {7} else None
    return energy, cell, species, numbers[:, :3], forces


def chebyshev(x, order):
    """T_0 to T_order of x and their derivatives, each (order + 1, n)."""
    t, d = [np.ones_like(x), x], [np.zeros_like(x), np.ones_like(x)]
    for _ in range(order - 1):
        t.append(2 * x * t[-1] - t[-2])
        d.append(2 * t[-2] + 2 * x * d[-1] - d[-2])
    return np.array(t[: order + 1]), np.array(d[: order + 1])


def fade(r, cutoff):
    """How much a neighbour at distance r counts, and the derivative of that."""
    phase = np.pi * r / cutoff
    return (np.cos(phase) + 1) / 2, -np.sin(phase) * np.pi / cutoff / 2


def neighbours(positions, cell, cutoff):
    """Pairs of an atom and a neighbour (or a periodic image of one) nearer than cutoff: center (e,), neighbour (e,)
    and the vector from one to the other (e, 3), by center, then neighbour, then image."""
    if cell is None:
        images = np.zeros((1, 3))
    else:
        heights = 1 / np.linalg.norm(np.linalg.inv(cell), axis=0)
        # Atoms may lie anywhere, so as many cells more as they are apart.
        spread = np.ptp(positions @ np.linalg.inv(cell), axis=0)
        reach = np.ceil(cutoff / heights + spread).astype(int)
        grid = np.meshgrid(*(np.arange(-n, n + 1) for n in reach), indexing="ij")
        images = np.stack(grid, -1).reshape(-1, 3) @ cell
    centers, others, vectors = [], [], []
    targets = positions[:, None] + images
    for center, place in enumerate(positions):
        vector = targets - place
        square = np.einsum("nij,nij->ni", vector, vector)
        other, image = np.nonzero((square < cutoff**2) & (square > 1e-12))
        centers.append(np.full(len(other), center))
        others.append(other)
        vectors.append(vector[other, image])
    return np.concatenate(centers), np.concatenate(others), np.concatenate(vectors)


class Descriptors:
    """species: symbols in the order that gives them their weights; cutoffs in Å; orders of the
    polynomials."""

    def __init__(self, species, rad_order, rad_cutoff, ang_order, ang_cutoff, min_cutoff):
        self.weights = self.weigh(species)
        self.rad_order, self.rad_cutoff = rad_order, rad_cutoff
        self.ang_order, self.ang_cutoff = ang_order, ang_cutoff
        self.min_cutoff = min_cutoff

    @staticmethod
    def weigh(species):
        """…, -2, -1, 1, 2, … with 0 in the middle where the number of species is odd."""
        half = len(species) // 2
        weights = [n for n in range(-half, half + 1) if n or len(species) % 2]
        return dict(zip(species, map(float, weights)))

    def describe(self, species, positions, cell, derivatives=True):
        """Features (n, f), and a dict of derivatives."""
        unknown = sorted(set(species) - set(self.weights))
        if unknown:
            raise ValueError(f"species {', '.join(unknown)} are not among those described")
        weight = np.array([self.weights[symbol] for symbol in species])
        n = len(species)
        center, other, vector = neighbours(positions, cell, max(self.rad_cutoff, self.ang_cutoff))
        distance = np.linalg.norm(vector, axis=1)
        keep = distance > self.min_cutoff
        center, other, vector, distance = center[keep], other[keep], vector[keep], distance[keep]

        near = distance < self.rad_cutoff
        edge = {"center": center[near], "neighbor": other[near]}
        r, u = distance[near], vector[near] / distance[near, None]
        span = self.rad_cutoff - self.min_cutoff
        t, dt = chebyshev(2 * (r - self.min_cutoff) / span - 1, self.rad_order)
        f, df = fade(r, self.rad_cutoff)
        radial = (t * f).T
        sums = [self.sum(n, edge["center"], radial, weight[edge["neighbor"]])]
        if derivatives:
            slope = (dt * 2 / span * f + t * df).T
            edge["d_neighbor"] = slope[:, :, None] * u[:, None, :]

        near = distance < self.ang_cutoff
        first, second = self.pairs(center[near], n)
        r, v, at = distance[near], vector[near], other[near]
        u = v / r[:, None]
        f, df = fade(r, self.ang_cutoff)
        cosine = np.clip(np.einsum("ti,ti->t", u[first], u[second]), -1, 1)
        t, dt = chebyshev(cosine, self.ang_order)
        angular = (t * f[first] * f[second]).T
        triplet = {"center": center[near][first], "j": at[first], "k": at[second]}
        sums.append(self.sum(n, triplet["center"], angular, weight[at[first]] * weight[at[second]]))
        if derivatives:
            for name, a, b in (("d_j", first, second), ("d_k", second, first)):
                turn = (u[b] - cosine[:, None] * u[a]) / r[a, None]
                triplet[name] = (
                    (dt * f[a] * f[b]).T[:, :, None] * turn[:, None, :]
                    + (t * df[a] * f[b]).T[:, :, None] * u[a][:, None, :]
                )
            triplet["d_center"] = -(triplet["d_j"] + triplet["d_k"])
        (radial, radial_weighted), (angular, angular_weighted) = sums
        parts = [radial, angular]
        if len(self.weights) > 1:
            parts += [radial_weighted, angular_weighted]
        return np.concatenate(parts, axis=1), {"edge": edge, "triplet": triplet}

    @staticmethod
    def sum(n, center, values, weight):
        plain, weighted = np.zeros((2, n, values.shape[1]))
        np.add.at(plain, center, values)
        np.add.at(weighted, center, values * weight[:, None])
        return plain, weighted

    @staticmethod
    def pairs(center, n):
        """Positions of both neighbours of each pair that has its center in common; center ascends."""
        first, second = [], []
        ends = np.searchsorted(center, np.arange(n + 1))
        for begin, end in zip(ends, ends[1:]):
            a, b = np.triu_indices(end - begin, 1)
            first.append(a + begin)
            second.append(b + begin)
        return np.concatenate(first), np.concatenate(second)

    def __call__(self, batch):
        """One row per structure of the text column."""
        columns = {}
        for text in batch["text"].to_pylist():
            for name, value in self.row(text).items():
                columns.setdefault(name, []).append(value)
        return columns

    def row(self, text):
        energy, cell, species, positions, forces = parse_xsf(text)
        features, sums = self.describe(species, positions, cell, forces is not None)
        row = {
            "energy": energy,
            "cell": cell,
            "atomic_number": np.array([NUMBERS[symbol] for symbol in species], "u1"),
            "position": positions,
            "force": forces,
            "features": features.astype("f4"),
            "n_edges": len(sums["edge"]["center"]),
            "n_triplets": len(sums["triplet"]["center"]),
        }
        for kind, indices, slopes in (
            ("edge", ("center", "neighbor"), ("d_neighbor",)),
            ("triplet", ("center", "j", "k"), ("d_center", "d_j", "d_k")),
        ):
            for names, dtype in ((indices, "i4"), (slopes, "f4")):
                for name in names:
                    row[f"{kind}_{name}"] = None if forces is None else sums[kind][name].astype(dtype)
        return row
