"""Metadata of small meshes, in patches: what a program that cuts meshes writes."""

import itertools

import numpy as np


def box(*cells):
    """Positions and tetrahedra of a box, six tetrahedra a cube (Kuhn, 1960)."""
    points = [n + 1 for n in cells]
    x = np.array(list(np.ndindex(*points)), float)
    tets = []
    for cube in np.ndindex(*cells):
        for order in itertools.permutations(range(3)):
            corner, tet = list(cube), [np.ravel_multi_index(cube, points)]
            for axis in order:
                corner[axis] += 1
                tet.append(np.ravel_multi_index(corner, points))
            tets.append(tet)
    return x, np.array(tets)


def sheet(*cells):
    """Positions and triangles of a rectangle."""
    points = [n + 1 for n in cells]
    x = np.array([(i, j, 0.0) for i, j in np.ndindex(*points)])
    at = lambda i, j: np.ravel_multi_index((i, j), points)
    faces = []
    for i, j in np.ndindex(*cells):
        faces.append([at(i, j), at(i + 1, j), at(i + 1, j + 1)])
        faces.append([at(i, j), at(i + 1, j + 1), at(i, j + 1)])
    return x, np.array(faces)


def incidence(count, top):
    """{(order, order): rows of numbers}, and the elements as tuples of vertices."""
    rank = top.shape[1] - 1
    elements = {0: [(v,) for v in range(count)], rank: [tuple(map(int, e)) for e in top]}
    for order in range(1, rank):
        parts = (p for e in top for p in itertools.combinations(sorted(map(int, e)), order + 1))
        elements[order] = list(dict.fromkeys(parts))
    number = {o: {tuple(sorted(e)): k for k, e in enumerate(all_)} for o, all_ in elements.items()}

    def down(a, b):
        if b == 0:
            return [list(e) for e in elements[a]]
        parts = lambda e: itertools.combinations(sorted(e), b + 1)
        return [[number[b][p] for p in parts(e)] for e in elements[a]]

    def up(a, b):
        rows = [[] for _ in elements[a]]
        for k, row in enumerate(down(b, a)):
            for part in row:
                rows[part].append(k)
        return rows

    def beside(a):
        """Vertices by an edge, others by a part of one order less."""
        through = up(0, 1) if a == 0 else down(a, a - 1)
        back = down(1, 0) if a == 0 else up(a - 1, a)
        rows = []
        for k, row in enumerate(through):
            near = dict.fromkeys(n for part in row for n in back[part] if n != k)
            rows.append(list(near))
        return rows

    pairs = itertools.product(elements, repeat=2)
    rows = {(a, b): down(a, b) if a > b else up(a, b) if a < b else beside(a) for a, b in pairs}
    return rows, elements


def metadata(x, top, patch_of):
    """What a metadata file holds, the rows, and the patch that owns each element.

    Args:
        x: positions.
        top: vertices of the elements of the highest order.
        patch_of: their patches.
    """
    rows, elements = incidence(len(x), top)
    orders = sorted(elements)
    owner = {}
    for order in orders:
        above = rows[order, orders[-1]] if order != orders[-1] else [[k] for k in range(len(top))]
        owner[order] = np.array([min(patch_of[t] for t in row) if row else 0 for row in above])
    patches = int(max(patch_of)) + 1
    local = {order: [] for order in orders}  # by patch: numbers, owned ones first
    for patch in range(patches):
        have = {o: dict.fromkeys(np.flatnonzero(owner[o] == patch).tolist()) for o in orders}
        for a, b in itertools.product(orders, repeat=2):
            for k in np.flatnonzero(owner[a] == patch):
                have[b].update(dict.fromkeys(rows[a, b][k]))
        for a in reversed(orders):  # rows to lower orders are those of all local elements
            for b in range(a):
                for k in list(have[a]):
                    have[b].update(dict.fromkeys(rows[a, b][k]))
        for order in orders:
            local[order].append(list(have[order]))
    at = {o: [{k: i for i, k in enumerate(numbers)} for numbers in local[o]] for o in orders}
    data = {"num_patches": patches, "elements": [], "relations": []}
    data["attrs"] = {"x": x.ravel().tolist()}
    for order in orders:
        owned = [int((owner[order] == p).sum()) for p in range(patches)]
        in_patches = [k for p in range(patches) for k in local[order][p][: owned[p]]]
        reordered = {k: i for i, k in enumerate(in_patches)}
        ids = [k for numbers in local[order] for k in numbers]
        data["elements"].append(
            {
                "order": order,
                "num": len(elements[order]),
                "max_num_per_patch": max(map(len, local[order])),
                "owned_offsets": [0, *itertools.accumulate(owned)],
                "total_offsets": [0, *itertools.accumulate(map(len, local[order]))],
                "l2g_mapping": ids,
                "l2r_mapping": [reordered[k] for k in ids],
                "g2r_mapping": [reordered[k] for k in range(len(ids)) if k in reordered],
            }
        )
    for a, b in itertools.product(orders, repeat=2):
        made = {"from_order": a, "to_order": b, "value": []}
        if a <= b:
            made |= {"offset": [], "patch_offset": []}
        for patch in range(patches):
            numbers = local[a][patch]
            if a <= b:
                numbers = [k for k in numbers if owner[a][k] == patch]
                lengths = [len(rows[a, b][k]) for k in numbers]
                made["patch_offset"].append(len(made["value"]))
                made["offset"] += [0, *itertools.accumulate(lengths)]
            made["value"] += [at[b][patch][t] for k in numbers for t in rows[a, b][k]]
        data["relations"].append(made)
    return data, rows, owner
