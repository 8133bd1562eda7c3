"""The list of what was skipped, which tools/check and tools/verdicts print."""

SHOWN = 4  # names of a group


def print_skipped(skips):
    """`skips` are pairs of a name and a reason.  Grouped by reason; cases of a
    test (`TEST: CASE`) first, whole tests last, where they are seen."""
    groups = {}
    for name, reason in skips:
        names = groups.setdefault(reason, [])
        if name not in names:
            names.append(name)
    if not groups:
        return
    print("== SKIPPED, and why", flush=True)
    for reason, names in sorted(groups.items(), key=lambda g: (
            any(": " not in name for name in g[1]), len(g[1]))):
        more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        print(f"   {len(names)} x {reason}")
        print("       " + ", ".join(names[:SHOWN]) + more, flush=True)
