"""Figures, as SVG: the same numbers give the same file."""

import io

from . import modelfile


def draw(path, paint):
    """Paints a figure and writes it."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "flashsift"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
    paint(axes)
    axes.legend()
    axes.grid(alpha=0.3)
    data = io.BytesIO()
    figure.savefig(data, format="svg", metadata={"Date": None})
    plt.close(figure)
    modelfile.write(path, data.getvalue())


def curves(report, path):
    """Draws precision over recall for each model."""

    def paint(axes):
        for name, model in report["models"].items():
            recall = [point[2] for point in model["curve"]]
            precision = [point[1] for point in model["curve"]]
            line = axes.step(recall, precision, where="pre", label=name)[0]
            if model["precision"] is not None and model["recall"] is not None:
                axes.plot(model["recall"], model["precision"], "o", color=line.get_color())
        share = report["positive"]["test"] / max(1, report["files"]["test"])
        axes.axhline(share, linestyle=":", color="grey", label="keep all")
        axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(0, 1.01))

    draw(path, paint)


def frontiers(report, path):
    """Draws what each model keeps from flash over what it fetches again."""

    def paint(axes):
        for name, model in report["models"].items():
            points = model["frontier"]
            axes.plot(
                [point["fetched_again_bytes"] / 1e6 for point in points],
                [point["kept_from_flash_bytes"] / 1e6 for point in points],
                "o-",
                label=name,
            )
        axes.set(xlabel="fetched again, MB", ylabel="kept from flash, MB")

    draw(path, paint)
