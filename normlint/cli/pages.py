"""The commands that show: norms, show, measure, explain, rules, baseline."""

from pathlib import Path
from typing import Annotated

import typer

from normlint.cli.app import app, leave
from normlint.flags import (
    AllowEmpty,
    BaselineMode,
    Color,
    ColorOption,
    ConfigOption,
    Exclude,
    Isolated,
    ListChoice,
    NormsFormat,
    PageFormat,
    Paths,
    RulesFormat,
    ShowFormat,
    Verbose,
    complete_rule,
    resolver_of,
    split,
)
from normlint.report import stream


@app.command()
def norms(
    *,
    paths: Paths = None,
    output_format: Annotated[NormsFormat, typer.Option(help="Format.")] = NormsFormat.TEXT,
    as_map: Annotated[
        bool, typer.Option("--map", help="Draw the residual streams: a line a layer.")
    ] = False,
    as_list: Annotated[
        ListChoice | None,
        typer.Option(
            "--list",
            help="The nodes that must stay in float: for quantize_static of ONNX Runtime (JSON), "
            "for --layerPrecisions of trtexec, or for the ignored scope of NNCF (JSON).",
            show_default=False,
        ),
    ] = None,
    exclude: Exclude = None,
    allow_empty: AllowEmpty = False,
    verbose: Verbose = False,  # noqa: ARG001 - looked for when a bug is reported
    color: ColorOption = Color.AUTO,
    config: ConfigOption = None,
    isolated: Isolated = False,
) -> None:
    """List every normalisation: what it is, and where it stands.

    How each is computed, its axes and epsilon, its type, and its layer in the residual stream.
    """

    def job() -> int:
        from normlint.listing import excluded_nodes, list_norms, map_norms

        resolver = resolver_of({"exclude": split(exclude)}, config, isolated=isolated)
        if as_list is not None:
            return excluded_nodes(paths or ["."], resolver, as_list.value, allow_empty=allow_empty)
        if as_map:
            return map_norms(paths or ["."], resolver, allow_empty=allow_empty, color=color.value)
        return list_norms(
            paths or ["."],
            resolver,
            as_json=output_format is NormsFormat.JSON,
            allow_empty=allow_empty,
            color=color.value,
        )

    leave(job)


@app.command()
def show(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model, or - for standard input.")
    ],
    *,
    node: Annotated[
        str | None,
        typer.Option(metavar="GLOB", help="The nodes of this name and their neighbours."),
    ] = None,
    finding: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="One finding, before and after.")
    ] = None,
    stream_number: Annotated[
        int | None, typer.Option("--stream", metavar="N", help="One residual stream, from 0.")
    ] = None,
    output_format: Annotated[
        ShowFormat, typer.Option("--format", "--output-format", help="Format.")
    ] = ShowFormat.TEXT,
    verbose: Verbose = False,  # noqa: ARG001 - looked for when a bug is reported
    config: ConfigOption = None,
    isolated: Isolated = False,
) -> None:
    """Show a model as text, or draw a part of it."""

    def job() -> int:
        from normlint.showing import Part
        from normlint.showing import show as show_model

        part = Part(node, finding, stream_number)
        resolver = resolver_of({}, config, isolated=isolated)
        return show_model(model, part, output_format.value, resolver)

    leave(job)


@app.command()
def measure(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model.")],
    *,
    data: Annotated[
        Path, typer.Option(help="Your own inputs (npz): an array for each input of the model.")
    ],
    output_format: Annotated[NormsFormat, typer.Option(help="Format.")] = NormsFormat.TEXT,
    verbose: Verbose = False,  # noqa: ARG001 - looked for when a bug is reported
    color: ColorOption = Color.AUTO,
    config: ConfigOption = None,
    isolated: Isolated = False,
) -> None:
    """Show what the norms of a model see on your own data.

    It runs the model, and tells for each norm of means, ranges and outlier channels.
    """

    def job() -> int:
        from normlint.measuring import measure as measure_model

        settings = resolver_of({}, config, isolated=isolated).for_folder(model.parent).settings
        as_json = output_format is NormsFormat.JSON
        return measure_model(model, data, settings, as_json=as_json, color=color.value)

    leave(job)


@app.command()
def explain(
    rule: Annotated[
        str,
        typer.Argument(metavar="RULE", help="A rule's code or name.", autocompletion=complete_rule),
    ],
    *,
    output_format: Annotated[
        PageFormat, typer.Option("--format", "--output-format", help="Format.")
    ] = PageFormat.TEXT,
    verbose: Verbose = False,  # noqa: ARG001 - looked for when a bug is reported
) -> None:
    """Show a rule's page: why it matters, an example."""

    def job() -> int:
        from normlint.report.rules import markdown_page, page, rule_named

        write = markdown_page if output_format is PageFormat.MARKDOWN else page
        stream.emit(write(rule_named(rule)))
        return 0

    leave(job)


@app.command()
def rules(
    *,
    output_format: Annotated[
        RulesFormat, typer.Option("--format", "--output-format", help="Format.")
    ] = RulesFormat.TEXT,
    new: Annotated[
        str | None,
        typer.Option("--new", metavar="NAME", help="Write a first rule and its test here instead."),
    ] = None,
    verbose: Verbose = False,  # noqa: ARG001 - looked for when a bug is reported
) -> None:
    """List the rules."""

    def job() -> int:
        if new is not None:
            from normlint.scaffold import new_rule

            rule, test = new_rule(new, Path())
            stream.emit(f"wrote {rule} and {test}\n")
            return 0
        from normlint.plugins import load_cards
        from normlint.report.rules import table

        stream.emit(table(load_cards(), output_format.value))
        return 0

    leave(job)


@app.command()
def baseline(
    mode: Annotated[
        BaselineMode,
        typer.Argument(
            help="create: know all that is found; update: know again what was known under another "
            "name; prune: forget what is gone; show: list it."
        ),
    ],
    *,
    paths: Paths = None,
    file: Annotated[
        Path | None,
        typer.Option("--baseline", help="The file. [default: normlint-baseline.json]"),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="RULES", help="These rules only.")
    ] = None,
    exclude: Exclude = None,
    verbose: Verbose = False,  # noqa: ARG001 - looked for when a bug is reported
    config: ConfigOption = None,
    isolated: Isolated = False,
) -> None:
    """Keep the file of known findings, which do not count."""

    def job() -> int:
        from normlint.keeping import keep

        over = {
            "baseline": file and str(file),
            "select": split(select),
            "exclude": split(exclude),
        }
        return keep(mode.value, paths or ["."], resolver_of(over, config, isolated=isolated))

    leave(job)
