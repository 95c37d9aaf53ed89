"""`normlint check`: its flags.

Annotations are evaluated here as they are defined: typer would compile each of them from its text.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from normlint.cli.app import app, leave
from normlint.flags import (
    AllowEmpty,
    Color,
    ColorOption,
    ConfigOption,
    Exclude,
    FailOn,
    IntentChoice,
    Isolated,
    NoProgress,
    Paths,
    Quiet,
    Verbose,
    Verify,
    complete_format,
    complete_rule,
    complete_target,
    intent_of,
    jobs_of,
    resolver_of,
    selection_of,
    split,
    targets_of,
)

_EPILOG = (
    "Exit codes: 0 nothing at or above --fail-on remains; 1 something does, a model could not be "
    "read, --diff would change something or a verification failed; 2 usage or configuration; "
    "3 a bug in normlint."
)


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
        typer.Option(
            metavar="RUNTIMES",
            help="Runtimes that the model is for.",
            autocompletion=complete_target,
        ),
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
            autocompletion=complete_format,
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
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Check on the workers of the dask cluster there, not here."
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up a model after so long.", min=0, max=1e9),
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
    """Find problems with normalisation layers; --apply repairs them."""

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
            scheduler=scheduler,
            show_files=show_files,
            show_settings=show_settings,
            quiet=quiet,
            verbose=verbose,
            progress=not no_progress,
            color=color.value,
        )
        return check_models(paths or ["."], resolver_of(over, config, isolated=isolated), wishes)

    leave(job)
