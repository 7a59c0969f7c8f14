"""op_control.py -- control flow that is known when the graph is made: branches, and unrolled scans."""

import numpy as np

from calls import Inexpressible
from mapper import Entry, Typed, op


@op("If")
def branch(n):
    taken = "then_branch" if bool(np.ravel(n.known(0))[0]) else "else_branch"
    return [Typed(n.m.value(e), e.etype) for e in n.m.subgraph(n.attrs[taken], [])]


@op("Scan")
def scan(n):
    """Steps one after another; states first, then what is scanned."""
    c, body = n.c, n.attrs["body"]
    scanned = n.attr("num_scan_inputs")
    if n.m.version() < 9 or n.attr("scan_input_directions") or n.attr("scan_output_directions"):
        raise Inexpressible("scans of version 8 and backward ones")
    states = [Entry(n.etype(i), value=n.x(i)) for i in range(len(n) - scanned)]
    rows = [(n.x(i), n.etype(i)) for i in range(len(n) - scanned, len(n))]
    axes = n.attr("scan_input_axes", [0] * scanned)
    steps, outputs = rows[0][0].dims[axes[0]], []
    for t in range(steps):
        now = []
        for (x, etype), axis in zip(rows, axes):
            part = c.slice(x, axis, t, t + 1)
            now.append(Entry(etype, value=c.reshape(part, *part.dims[:axis], *part.dims[axis + 1 :])))
        results = n.m.subgraph(body, states + now)
        states = [Entry(e.etype, value=n.m.value(e)) for e in results[: len(states)]]
        outputs.append([n.m.value(e) for e in results[len(states) :]])
    axes = n.attr("scan_output_axes", [0] * len(outputs[0]))
    stacked = [
        c.concat(axis, [c.reshape(v, *v.dims[:axis], 1, *v.dims[axis:]) for v in column])
        for column, axis in zip(zip(*outputs), axes)
    ]
    return [Typed(e.value, e.etype) for e in states] + stacked
