"""What the examples share: their command line, where pictures go, and the optional window."""

import argparse
import json
import pathlib
import time

BEGIN = time.perf_counter()  # examples import this first: times count from here
OUT = pathlib.Path(__file__).resolve().parent.parent / "out"


def options(doc, **numbers):
    """`--show`, `--times`, `--out` and one integer option per keyword."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="open the result in a window")
    parser.add_argument("--times", action="store_true", help="end with a JSON line of times")
    parser.add_argument("--out", type=pathlib.Path, default=OUT, help="folder for pictures")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def since_start():
    """Milliseconds since the example began to import things."""
    return 1e3 * (time.perf_counter() - BEGIN)


def clocked(call, repeats=6):
    """Run `call` and then time it: what the first result and every later one cost."""
    call()
    first, times = since_start(), []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return {"start to picture, ms": first, "steady picture, ms": sorted(times)[repeats // 2]}


def save(args, name, frames, still=0):
    """Write frame number `still` as PNG and, if there are several, all as an animated GIF."""
    from PIL import Image

    png, gif = args.out / f"{name}.png", args.out / f"{name}.gif"
    images = [Image.fromarray(f) for f in frames]
    images[still].save(png)
    if len(images) == 1:
        return (png,)
    small = [i.quantize(96, dither=Image.Dither.NONE) for i in images]
    small[0].save(gif, save_all=True, append_images=small[1:], duration=33, loop=0)
    return png, gif


def finish(args, times, *files):
    for name, value in times.items():
        print(f"{name:>24}: {value:.2f}")
    for file in files:
        print(f"{'wrote':>24}: {file}")
    if args.show:
        show(files[-1])
    if args.times:
        print(json.dumps({"times": times, "files": [str(f) for f in files]}))


def show(file):
    """Play a picture or an animation in a window, with tkinter or else matplotlib."""
    from PIL import Image, ImageSequence

    frames = [f.convert("RGB") for f in ImageSequence.Iterator(Image.open(file))]
    try:
        import tkinter

        from PIL import ImageTk

        window = tkinter.Tk()
    except Exception as error:  # no tkinter, or no display
        print(f"no tkinter window ({error}); trying matplotlib")
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            return print(f"no matplotlib either; the picture is {file}")
        plt.imshow(frames[-1])
        plt.axis("off")
        plt.show()
        return
    pictures = [ImageTk.PhotoImage(f) for f in frames]
    label = tkinter.Label(window)
    label.pack()

    def turn(i):
        label.configure(image=pictures[i % len(pictures)])
        window.after(33, turn, i + 1)

    turn(0)
    window.mainloop()
