"""One scene of the Genesis simulator in a process of its own; prints one JSON line, saves its states.

    python genesis_scenes.py SCENE --states FILE.npz [--steps N] [--measure SECONDS]

The package under test is whichever `quadrants` this process imports. CPU time inside it is taken at
its border: every kernel that Genesis' modules hold is called through a timer. Threads other than the
main one compile, or work for Genesis: what they also need in a warm process is Genesis'.
"""

import argparse
import inspect
import json
import pathlib
import sys
import time

SCENES = {}


def scene(function):
    SCENES[function.__name__] = function
    return function


# Each scene adds its entities and returns what to read after each step, by name.


def _franka(gs, s, n_envs):
    s.add_entity(gs.morphs.Plane())
    arm = s.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))
    return n_envs, {"qpos": arm.get_qpos, "velocity": arm.get_dofs_velocity}


@scene
def franka(gs, s):
    return _franka(gs, s, 0)


@scene
def franka_64(gs, s):
    return _franka(gs, s, 64)


@scene
def franka_1024(gs, s):
    return _franka(gs, s, 1024)


@scene
def franka_4096(gs, s):
    return _franka(gs, s, 4096)


@scene
def collision(gs, s):
    """A box, a sphere, a cylinder and a mesh falling onto each other."""
    s.add_entity(gs.morphs.Plane())
    parts = {
        "box": gs.morphs.Box(size=(0.2, 0.2, 0.2), pos=(0, 0, 0.11)),
        "sphere": gs.morphs.Sphere(radius=0.1, pos=(0.02, 0.01, 0.33)),
        "cylinder": gs.morphs.Cylinder(radius=0.08, height=0.2, pos=(0.5, 0, 0.12)),
        "duck": gs.morphs.Mesh(file="meshes/duck.obj", scale=0.05, pos=(-0.5, 0, 0.15)),
    }
    bodies = {name: s.add_entity(morph) for name, morph in parts.items()}
    reads = {f"{n}_position": b.get_pos for n, b in bodies.items()}
    return 0, reads | {f"{n}_velocity": b.get_vel for n, b in bodies.items()}


@scene
def terrain(gs, s):
    s.add_entity(
        gs.morphs.Terrain(
            n_subterrains=(2, 2),
            subterrain_size=(3.0, 3.0),
            horizontal_scale=0.25,
            vertical_scale=0.005,
            subterrain_types=[
                ["flat_terrain", "sloped_terrain"],
                ["wave_terrain", "stairs_terrain"],
            ],
        )
    )
    dog = s.add_entity(gs.morphs.URDF(file="urdf/go2/urdf/go2.urdf", pos=(1.5, 1.5, 0.6)))
    ball = s.add_entity(gs.morphs.Sphere(radius=0.2, pos=(4.5, 1.5, 0.8)))
    return 2, {"dog": dog.get_qpos, "dog_velocity": dog.get_dofs_velocity, "ball": ball.get_pos}


@scene
def sensors(gs, s):
    s.add_entity(gs.morphs.Plane())
    box = s.add_entity(gs.morphs.Box(size=(0.3, 0.3, 0.3), pos=(0, 0, 0.2)))
    imu = s.add_sensor(gs.sensors.IMU(entity_idx=box.idx))
    force = s.add_sensor(gs.sensors.ContactForce(entity_idx=box.idx))
    contact = s.add_sensor(gs.sensors.Contact(entity_idx=box.idx))
    lidar = s.add_sensor(
        gs.sensors.Lidar(pattern=gs.sensors.SphericalPattern(), entity_idx=box.idx)
    )
    return 0, {
        "acceleration": lambda: imu.read().lin_acc,
        "rotation": lambda: imu.read().ang_vel,
        "force": force.read,
        "contact": contact.read,
        "distances": lambda: lidar.read().distances,
        "position": box.get_pos,
    }


def _particles(entity):
    return {"position": entity.get_particles_pos, "velocity": entity.get_particles_vel}


@scene
def mpm(gs, s):
    s.add_entity(gs.morphs.Plane())
    cube = s.add_entity(
        gs.morphs.Box(pos=(0, 0, 0.3), size=(0.2, 0.2, 0.2)),
        material=gs.materials.MPM.Elastic(sampler="regular"),  # the usual one is not repeatable
    )
    sand = s.add_entity(
        gs.morphs.Box(pos=(0, 0, 0.6), size=(0.2, 0.2, 0.1)),
        material=gs.materials.MPM.Sand(sampler="regular"),
    )
    return 0, _particles(cube) | {"sand": sand.get_particles_pos}


@scene
def sph(gs, s):
    s.add_entity(gs.morphs.Plane())
    water = s.add_entity(
        gs.morphs.Box(pos=(0, 0, 0.4), size=(0.3, 0.3, 0.3)),
        material=gs.materials.SPH.Liquid(sampler="regular"),
    )
    return 0, _particles(water)


@scene
def pbd(gs, s):
    s.add_entity(gs.morphs.Plane())
    cloth = s.add_entity(
        gs.morphs.Mesh(file="meshes/cloth.obj", scale=1.0, pos=(0, 0, 0.5)),
        material=gs.materials.PBD.Cloth(),
    )
    return 0, _particles(cloth)


@scene
def fem(gs, s):
    s.add_entity(gs.morphs.Plane())
    ball = s.add_entity(
        gs.morphs.Sphere(radius=0.15, pos=(0, 0, 0.3)), material=gs.materials.FEM.Elastic()
    )
    # Velocities are differences of positions over 2e-5 s: in f32 they hold two digits.
    return 0, {"position": lambda: ball.get_state().pos}


OPTIONS = {
    "mpm": lambda gs: {
        "sim_options": gs.options.SimOptions(dt=2e-3, substeps=10),
        "mpm_options": gs.options.MPMOptions(
            lower_bound=(-0.5, -0.5, 0.0), upper_bound=(0.5, 0.5, 1.0)
        ),
    },
    "sph": lambda gs: {
        "sim_options": gs.options.SimOptions(dt=2e-3, substeps=2),
        "sph_options": gs.options.SPHOptions(
            lower_bound=(-0.5, -0.5, 0.0), upper_bound=(0.5, 0.5, 1.0), particle_size=0.02
        ),
    },
    "pbd": lambda gs: {"sim_options": gs.options.SimOptions(dt=4e-3, substeps=4)},
    "fem": lambda gs: {"sim_options": gs.options.SimOptions(dt=1e-3, substeps=50)},
}


class Timer:
    """CPU seconds of the main thread inside the package, nested calls counted once."""

    def __init__(self):
        self.seconds, self.depth = 0.0, 0

    def around(self, call, args, kwargs):
        if self.depth:
            return call(*args, **kwargs)
        self.depth, start = 1, time.thread_time()
        try:
            return call(*args, **kwargs)
        finally:
            self.seconds += time.thread_time() - start
            self.depth = 0


class Timed:
    """A kernel behind a timer; everything but calls goes through."""

    def __init__(self, inner, timer):
        self.__dict__.update(_inner=inner, _timer=timer)

    def __call__(self, *args, **kwargs):
        return self._timer.around(self._inner, args, kwargs)

    def __get__(self, instance, owner=None):
        get = getattr(self._inner, "__get__", None)
        return Timed(get(instance, owner) if get else self._inner, self._timer)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def __setattr__(self, name, value):
        setattr(self._inner, name, value)


def time_the_border(qd, timer):
    """Puts every kernel of Genesis' modules and classes, and what makes or reads arrays, behind `timer`."""

    @qd.kernel
    def probe():
        pass

    kernel_type = type(probe)  # the established package has funcs of that type too

    def wrap(holder, names):
        for name, value in list(names.items()):
            if type(value) is kernel_type and value._primal is not None:
                setattr(holder, name, Timed(value, timer))

    for module in [m for n, m in sys.modules.items() if n.startswith("genesis") and m]:
        wrap(module, vars(module))
        for cls in [c for c in vars(module).values() if inspect.isclass(c)]:
            if cls.__module__.startswith("genesis"):
                wrap(cls, vars(cls))
    for name in ("field", "ndarray", "tensor", "sync"):
        setattr(qd, name, Timed(getattr(qd, name), timer))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("--states", required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--measure", type=float, default=0.0)
    parser.add_argument("--border", action="store_true")
    parser.add_argument("--fields", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()

    sys.path.pop(0)  # this folder, whose genesis.py is not the simulator
    import numpy as np
    import torch

    torch.set_num_threads(1)
    import quadrants as qd

    start = time.perf_counter()
    import genesis as gs

    numbers = {"import s": time.perf_counter() - start}
    timer = Timer()
    if args.border:
        time_the_border(qd, timer)
    backend = gs.gpu if args.gpu else gs.cpu
    gs.init(backend=backend, seed=0, logging_level="error", performance_mode=args.fields)
    assert not args.gpu or gs.device.type == "cuda", gs.device
    options = OPTIONS.get(args.scene, lambda gs: {})(gs)
    wall, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
    s = gs.Scene(show_viewer=False, **options)
    n_envs, reads = SCENES[args.scene](gs, s)
    s.build(n_envs=n_envs)
    s.step()
    qd.sync()
    numbers["build and first step s"] = time.perf_counter() - wall
    core = qd._lib.core
    if hasattr(core, "wait_for_optimisations"):  # of the kernels that ran for long
        core.wait_for_optimisations()
    total, main_thread = time.process_time() - process, time.thread_time() - thread
    numbers["CPU s"] = total
    if args.border:
        numbers["border, CPU s"] = timer.seconds
        numbers["other threads, CPU s"] = total - main_thread
    if hasattr(core, "finish_optimisations"):  # of all others, which a short program never needs
        rest = time.process_time()
        core.finish_optimisations()
        numbers["optimising the rest, CPU s"] = time.process_time() - rest

    def read():
        return {k: np.array(torch.as_tensor(v()).cpu().numpy()) for k, v in reads.items()}

    states = [read()]
    for _ in range(args.steps - 1):
        s.step()
        states.append(read())
    np.savez(args.states, **{k: np.stack([one[k] for one in states]) for k in states[0]})
    if args.measure:
        begin = time.perf_counter()
        while time.perf_counter() - begin < args.measure / 3:
            s.step()
        qd.sync()
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < args.measure:
            s.step()
            steps += 1
        qd.sync()
        numbers["steps/s"] = steps / (time.perf_counter() - begin)
    compiled = getattr(core, "counters", dict)()
    print(
        json.dumps(
            {
                "package": str(pathlib.Path(qd.__file__).parent),
                "numbers": numbers | {"front end ran": compiled.get("lowered")},
            }
        )
    )


if __name__ == "__main__":
    main()
