"""Sessions over days: a person comes back after an hour, a day and three days, and is called away
now and then."""

HOUR_S = 3600
RETURNS_H = (0, 1, 24, 72)
AWAY_SHARE = 0.04
AWAY_S = 12 * 60


def add_arguments(parser):
    parser.add_argument("--returns", type=float, nargs="+", metavar="HOURS", default=RETURNS_H,
                        help="the gap before each session, after the last one (default: 0 1 24 72); "
                             "the minutes are shared by the sessions")


def sessions(run):
    """Yields for each session `over()`, which tells whether its time is over."""
    returns = run.options.returns
    for hours in returns:
        run.think(hours * HOUR_S)
        run.did("session", f"after {hours:g} h")
        end_s = run.planned_s + run.options.minutes * 60 / len(returns)
        yield lambda end_s=end_s: run.planned_s >= end_s


def maybe_away(run, rng, look):
    """Now and then look(seconds) for many minutes."""
    away, seconds = rng.random() < AWAY_SHARE, rng.lognormvariate(0, 0.7) * AWAY_S
    if away:
        look(seconds)
        run.did("away", f"{seconds:.0f} s")
