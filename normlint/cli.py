"""The command line: what each flag is, and the only place that exits.

Annotations are evaluated here as they are defined: typer would compile each of them from its text.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normlint import __version__
from normlint.flags import (
    AllowEmpty,
    BaselineMode,
    Color,
    ColorOption,
    ConfigOption,
    Exclude,
    FailOn,
    IntentChoice,
    Isolated,
    ListChoice,
    NoProgress,
    NormsFormat,
    PageFormat,
    Paths,
    Quiet,
    RulesFormat,
    ShowFormat,
    Verbose,
    Verify,
    complete_rule,
    intent_of,
    jobs_of,
    resolver_of,
    selection_of,
    split,
    targets_of,
)
from normlint.plugins import PackError
from normlint.report import stream
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


USAGE, BUG, INTERRUPTED = 2, 3, 130
_EPILOG = (
    "Exit codes: 0 nothing at or above --fail-on remains; 1 something does, a model could not be "
    "read, --diff would change something or a verification failed; 2 usage or configuration; "
    "3 a bug in normlint."
)

app = typer.Typer(
    name="normlint",
    help="Find and repair problems with the normalisation layers of ONNX models.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)


def run() -> None:
    """Run the command line and exit."""
    try:
        app(prog_name="normlint")
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug gets exit code 3
        sys.exit(_bug(error))


def _bug(error: BaseException) -> int:
    if _wants_traceback():
        import traceback

        stream.say("".join(traceback.format_exception(error)).rstrip())
    stream.say(f"normlint: internal error: {type(error).__name__}: {error}")
    stream.say("This is a bug in normlint. Run it again with -v for a traceback, and report it.")
    return BUG


def _wants_traceback() -> bool:
    return bool({"-v", "--verbose"} & set(sys.argv)) or bool(os.environ.get("NORMLINT_TRACEBACK"))


def _exit(job: "Callable[[], int]") -> None:
    """Do a job and exit with its code."""
    try:
        code = job()
    except (UsageError, PackError) as error:
        stream.say(f"normlint: {error}")
        code = USAGE
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)


@app.callback(invoke_without_command=True)
def main(
    *,
    version: Annotated[
        bool, typer.Option("-V", "--version", help="Show the version and exit.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Versions of what it stands on, too.")
    ] = False,
) -> None:
    """Find and repair problems with the normalisation layers of ONNX models."""
    if version:
        from normlint.report.versions import versions_text

        stream.emit(versions_text() if verbose else f"normlint {__version__}\n")
        raise typer.Exit


@app.command(epilog=_EPILOG)
def check(
    *,
    paths: Paths = None,
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="RULES", help="Run these rules only.", autocompletion=complete_rule),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="RULES", help="Do not run these rules.", autocompletion=complete_rule),
    ] = None,
    extend_select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULES", help="Run these rules besides.", autocompletion=complete_rule
        ),
    ] = None,
    before_quantization: Annotated[
        bool,
        typer.Option(
            "--before-quantization",
            help="Run the rules whose repairs must come before a quantiser; --data for NL404.",
        ),
    ] = False,
    preview: Annotated[
        bool | None, typer.Option("--preview/--no-preview", help="Run rules in preview too.")
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(help="The least severity that fails. [default: warning]", show_default=False),
    ] = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="The same as --fail-on never.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", "--fix", help="Make the safe repairs.")] = False,
    unsafe_fixes: Annotated[
        bool | None,
        typer.Option(
            "--unsafe-fixes/--no-unsafe-fixes",
            help="Repairs too that change the function or need a judgement.",
        ),
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Write nothing, show what --apply would change.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the repaired model here.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="Write the repaired models into this folder.")
    ] = None,
    backup: Annotated[
        bool, typer.Option("--backup", help="Keep the old model beside the repaired one.")
    ] = False,
    verify: Annotated[
        Verify | None,
        typer.Option(help="How repairs are proved. [default: region]", show_default=False),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Your own inputs (npz) for --verify model.")
    ] = None,
    target_opset: Annotated[
        int | None, typer.Option(min=1, help="Let repairs raise the opset up to this one.")
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(metavar="RUNTIMES", help="Runtimes that the model is for."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Calibration inputs (npz), for rules that want evidence.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="The float model that a quantised one was made from, to compare with."),
    ] = None,
    intent: Annotated[
        IntentChoice | None,
        typer.Option(help="What the model is for. [default: infer]", show_default=False),
    ] = None,
    output_format: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FMT[=FILE]",
            envvar="NORMLINT_OUTPUT_FORMAT",
            help="full, concise, grouped, json, jsonl, sarif, github, gitlab, junit, markdown or "
            "html; repeatable, all but one into files. [default: full]",
        ),
    ] = None,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Count the findings of each rule.")
    ] = False,
    explain_misses: Annotated[
        bool, typer.Option("--explain-misses", help="Say why near-misses were not recognised.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="A file of known findings, which do not count.")
    ] = None,
    no_baseline: Annotated[
        bool, typer.Option("--no-baseline", help="Count the known findings too.")
    ] = False,
    no_model_ignores: Annotated[
        bool, typer.Option("--no-model-ignores", help="Distrust ignores that a model carries.")
    ] = False,
    exclude: Exclude = None,
    force_exclude: Annotated[
        bool | None,
        typer.Option("--force-exclude", help="Pass over excluded models that are named, too."),
    ] = None,
    allow_empty: AllowEmpty = False,
    jobs: Annotated[
        str | None,
        typer.Option(
            "-j", "--jobs", metavar="N|auto", help="Processes side by side. [default: auto]"
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up a model after so long.", min=0),
    ] = None,
    max_model_size: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="Do not open larger models.", min=0),
    ] = None,
    exit_non_zero_on_fix: Annotated[
        bool, typer.Option("--exit-non-zero-on-fix", help="A repair fails the run.")
    ] = False,
    show_files: Annotated[
        bool, typer.Option("--show-files", help="List what would be checked and exit.")
    ] = False,
    show_settings: Annotated[
        bool, typer.Option("--show-settings", help="Show the settings that hold and exit.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: ColorOption = Color.AUTO,
    no_progress: NoProgress = False,
    config: ConfigOption = None,
    isolated: Isolated = False,
) -> None:
    """Find problems with normalisation layers; with --apply repair them."""

    def job() -> int:
        from normlint.checking import Wishes
        from normlint.checking import check as check_models

        over: dict[str, Any] = {
            "select": selection_of(select, before_quantization=before_quantization),
            "ignore": split(ignore),
            "extend_select": split(extend_select),
            "preview": preview,
            "fail_on": FailOn.NEVER.value if exit_zero else fail_on and fail_on.value,
            "unsafe_fixes": unsafe_fixes,
            "verify": verify and verify.value,
            "target_opset": target_opset,
            "targets": targets_of(targets),
            "data": data,
            "intent": intent_of(intent),
            "output_format": output_format and tuple(output_format),
            "baseline": baseline and str(baseline),
            "allow_model_ignores": False if no_model_ignores else None,
            "exclude": split(exclude),
            "force_exclude": force_exclude,
            "jobs": jobs_of(jobs),
            "timeout": timeout,
            "max_model_size": max_model_size,
        }
        wishes = Wishes(
            apply=apply,
            diff=diff,
            output=output,
            output_dir=output_dir,
            backup=backup,
            inputs=inputs,
            reference=reference,
            explain_misses=explain_misses,
            baseline=not no_baseline,
            allow_empty=allow_empty,
            statistics=statistics,
            exit_non_zero_on_fix=exit_non_zero_on_fix,
            show_files=show_files,
            show_settings=show_settings,
            quiet=quiet,
            verbose=verbose,
            progress=not no_progress,
            color=color.value,
        )
        return check_models(paths or ["."], resolver_of(over, config, isolated=isolated), wishes)

    _exit(job)


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
    """List every normalisation in models: what it is, where it stands, how it is computed."""

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

    _exit(job)


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
    """Show a model as text, without its weights, or draw a part of it."""

    def job() -> int:
        from normlint.showing import Part
        from normlint.showing import show as show_model

        part = Part(node, finding, stream_number)
        resolver = resolver_of({}, config, isolated=isolated)
        return show_model(model, part, output_format.value, resolver)

    _exit(job)


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
    """Run a model on your own data and show what its norms see: means, ranges, outlier channels."""

    def job() -> int:
        from normlint.measuring import measure as measure_model

        settings = resolver_of({}, config, isolated=isolated).for_folder(model.parent).settings
        as_json = output_format is NormsFormat.JSON
        return measure_model(model, data, settings, as_json=as_json, color=color.value)

    _exit(job)


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
    """Show a rule's page: what it complains of, why, an example before and after."""

    def job() -> int:
        from normlint.report.rules import markdown_page, page, rule_named

        write = markdown_page if output_format is PageFormat.MARKDOWN else page
        stream.emit(write(rule_named(rule)))
        return 0

    _exit(job)


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

    _exit(job)


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
    """Keep the file of known findings, so that a run fails for new ones only."""

    def job() -> int:
        from normlint.keeping import keep

        over = {
            "baseline": file and str(file),
            "select": split(select),
            "exclude": split(exclude),
        }
        return keep(mode.value, paths or ["."], resolver_of(over, config, isolated=isolated))

    _exit(job)
