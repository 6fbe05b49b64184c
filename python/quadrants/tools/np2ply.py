"""PLY files: point clouds and meshes of triangles or quadrilaterals."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "float": "f4",
    "double": "f8",
}


class PLYWriter:
    """Collects channels of vertices and faces and writes them.

    Args:
        num_vertices: number of vertices.
        num_faces: number of faces.
        face_type: "tri" or "quad".
        comment: text for the header.

    Raises:
        AssertionError: no vertices, fewer than no faces, or another face type; in `export`, vertices without positions, and
            corners of faces that are no vertices.
    """

    def __init__(
        self,
        num_vertices: int,
        num_faces: int = 0,
        face_type: str = "tri",
        comment: str = "created by PLYWriter",
    ) -> None:
        assert num_vertices > 0, "num_vertices should be greater than 0"
        assert num_faces >= 0, "num_faces shouldn't be less than 0"
        assert face_type in ("tri", "quad"), f"face_type must be 'tri' or 'quad', got {face_type!r}"
        self.num_vertices = num_vertices
        self.num_faces = num_faces
        self.corners = 3 if face_type == "tri" else 4
        self.comment = comment
        self._vertex: list[tuple[str, str, Any]] = []
        self._face: list[tuple[str, str, Any]] = []
        self._indices: Any = None

    # --- vertices ---

    def add_vertex_channel(self, key: str, data_type: str, data: Any) -> None:
        """A number per vertex.

        Args:
            key: name of the property.
            data_type: a PLY type such as "float" or "int"; another one is told, and the channel left out.
            data: the numbers.
        """
        self._vertex += self._channel(self._vertex, key, data_type, data, self.num_vertices)

    def add_vertex_pos(self, x: Any, y: Any, z: Any) -> None:
        """Positions x, y, z: arrays or lists of one number per vertex."""
        self._add_vertex("x y z", "float", x, y, z)

    def add_vertex_normal(self, nx: Any, ny: Any, nz: Any) -> None:
        """Normals nx, ny, nz: arrays or lists of one number per vertex."""
        self._add_vertex("nx ny nz", "float", nx, ny, nz)

    def add_vertex_vel(self, vx: Any, vy: Any, vz: Any) -> None:
        """Velocities vx, vy, vz: arrays or lists of one number per vertex."""
        self._add_vertex("vx vy vz", "float", vx, vy, vz)

    def add_vertex_color(self, r: Any, g: Any, b: Any) -> None:
        """Colours r, g, b from 0 to 1: arrays or lists of one number per vertex."""
        self._add_vertex("red green blue", "float", r, g, b)

    def add_vertex_alpha(self, alpha: Any) -> None:
        """Opacities alpha from 0 to 1, one per vertex."""
        self._add_vertex("Alpha", "float", alpha)

    def add_vertex_rgba(self, r: Any, g: Any, b: Any, a: Any) -> None:
        """Colours r, g, b and opacities a from 0 to 1: arrays or lists of one number per vertex."""
        self._add_vertex("red green blue Alpha", "float", r, g, b, a)

    def add_vertex_id(self) -> None:
        """The number of each vertex, from 0."""
        self._add_vertex("id", "int", np.arange(self.num_vertices))

    def add_vertex_piece(self, piece: Any = None) -> None:
        """Piece numbers, one per vertex; 1 if piece is None."""
        self._add_vertex("piece", "int", np.ones(self.num_vertices) if piece is None else piece)

    # --- faces ---

    def add_faces(self, indices: Any) -> None:
        """Corners of all faces.

        Args:
            indices: numbers of vertices, flat or a row per face.

        Raises:
            AssertionError: the count is not num_faces times the corners of a face.
        """
        flat = np.asarray(indices).reshape(-1)
        assert flat.size == self.num_faces * self.corners, (
            f"{self.num_faces} faces need {self.num_faces * self.corners} indices, got {flat.size}"
        )
        self._indices = flat.reshape(self.num_faces, self.corners).astype("i4")

    def add_face_channel(self, key: str, data_type: str, data: Any) -> None:
        """A number per face.

        Args:
            key: name of the property.
            data_type: a PLY type such as "float" or "int"; another one is told, and the channel left out.
            data: the numbers.
        """
        self._face += self._channel(self._face, key, data_type, data, self.num_faces)

    def add_face_id(self) -> None:
        """The number of each face, from 0."""
        self.add_face_channel("id", "int", np.arange(self.num_faces))

    def add_face_piece(self, piece: Any = None) -> None:
        """Piece numbers, one per face; 1 if piece is None."""
        self.add_face_channel("piece", "int", np.ones(self.num_faces) if piece is None else piece)

    # --- files ---

    def export(self, path: str) -> None:
        """Writes a binary file to path."""
        self._check_positions()
        order = "<" if sys.byteorder == "little" else ">"
        parts = [self._header(f"binary_{sys.byteorder}_endian").encode()]
        parts.append(self._table(self._vertex, order, self.num_vertices).tobytes())
        if self.num_faces:
            faces = self._table(self._face, order, self.num_faces, with_indices=True)
            parts.append(faces.tobytes())
        with open(path, "wb") as f:  # once all is there: what is refused leaves no file
            f.writelines(parts)

    def export_ascii(self, path: str) -> None:
        """Writes a text file to path."""
        self._check_positions()
        header = self._header("ascii")
        with open(path, "w", encoding="utf-8") as f:
            f.write(header)
            # NumPy's own numbers: a float has as few digits as tell it from other floats.
            for row in zip(*(data for _, _, data in self._vertex)):
                f.write(" ".join(map(str, row)) + " \n")
            for k in range(self.num_faces):
                extra = [data[k] for _, _, data in self._face]
                f.write(" ".join(map(str, (self.corners, *self._indices[k], *extra))) + " \n")

    def export_frame(self, series_num: int, path: str) -> None:
        """Writes the binary file `<path>_NNNNNN.ply`, numbered series_num."""
        self.export(_frame_path(series_num, path))

    def export_frame_ascii(self, series_num: int, path: str) -> None:
        """Writes the text file `<path>_NNNNNN.ply`, numbered series_num."""
        self.export_ascii(_frame_path(series_num, path))

    # --- parts ---

    def _check_positions(self) -> None:
        keys = {key for key, _, _ in self._vertex}
        assert {"x", "y", "z"} <= keys, "The vertex pos channel is missing"

    def _add_vertex(self, keys: str, data_type: str, *channels: Any) -> None:
        for key, data in zip(keys.split(), channels):
            self.add_vertex_channel(key, data_type, data)

    @staticmethod
    def _channel(
        others: list[tuple[str, str, Any]], key: str, data_type: str, data: Any, count: int
    ) -> list[tuple[str, str, Any]]:
        if data_type not in _TYPES:
            print(f"Unknown type {data_type} detected, skipping this channel")
            return []
        if any(key == other for other, _, _ in others):  # readers may take either
            print(f"WARNING: duplicate key {key} detected")
        flat = np.asarray(data).reshape(-1).astype(_TYPES[data_type])
        assert flat.size == count, f"Channel {key!r} needs {count} numbers, got {flat.size}"
        return [(key, data_type, flat)]

    def _header(self, form: str) -> str:
        lines = [
            "ply",
            f"format {form} 1.0",
            f"comment {self.comment}",
            f"element vertex {self.num_vertices}",
        ]
        lines += [f"property {kind} {key}" for key, kind, _ in self._vertex]
        if self.num_faces:
            assert self._indices is not None, (
                "The face indices are invalid: add_faces comes before export"
            )
            assert self._indices.min() >= 0 and self._indices.max() < self.num_vertices, (
                f"The face indices are invalid: vertices are 0 to {self.num_vertices - 1}"
            )
            lines += [f"element face {self.num_faces}", "property list uchar int vertex_indices"]
            lines += [f"property {kind} {key}" for key, kind, _ in self._face]
        return "\n".join([*lines, "end_header", ""])

    def _table(
        self,
        channels: list[tuple[str, str, Any]],
        order: str,
        count: int,
        with_indices: bool = False,
    ) -> Any:
        """The channels as one packed record per vertex or face."""
        fields: list[Any] = [  # by their number: two may have one name
            (str(n), order + _TYPES[kind]) for n, (_, kind, _) in enumerate(channels)
        ]
        if with_indices:
            fields = [("count", "u1"), ("corners", order + "i4", (self.corners,)), *fields]
        table = np.zeros(count, dtype=fields)
        if with_indices:
            table["count"], table["corners"] = self.corners, self._indices
        for n, (_, _, data) in enumerate(channels):
            table[str(n)] = data
        return table


def _frame_path(number: int, path: str) -> str:
    return f"{path.removesuffix('.ply')}_{number:06d}.ply"
