/* fuzz_gradients.h -- a part of fuzz_api.c: the calls of coda_grad.h. */
static int call_coda_grad(void)
{
    coda_grad_options o = {.weights = (coda_dtype)(chance(60) ? 0 : below(8))};
    coda_graph *g = graph_any();
    coda_value y[2] = {value(), value()}, dy[2] = {maybe(), maybe()}, x[3] = {value(), value(), value()},
               dx[3];
    coda_grad(g, y, chance(50) ? NULL : dy, (int)below(3), x, (int)below(4), chance(95) ? dx : NULL,
              BOXED(o));
    return SILENT;
}

static int call_coda_split(void)
{
    coda_value also[2] = {value(), maybe()};
    coda_split_options o = {.keep = (coda_keep)below(4),
                            .also = chance(30) ? also : NULL,
                            .also_count = (int)below(3),
                            .consume = (int)below(chance(95) ? 2 : 4)};
    coda_graph *half[2] = {NULL, NULL};
    coda_status s = coda_split(graph_any(), (int)below(4), BOXED(o), chance(95) ? &half[0] : NULL, &half[1]);
    coda_graph_free(half[0]);
    coda_graph_free(half[1]);
    return s;
}

static int call_coda_adamw(void)
{
    coda_adamw_options o = {0,       (float)real(), (float)real(), 0.9f,    1e-8f,  (float)real(),
                            maybe(), maybe(),       maybe(),       maybe(), maybe()};
    coda_adamw(graph_any(), value(), value(), value(), value(), maybe(), BOXED(o));
    return SILENT;
}

static int call_coda_sgd(void)
{
    coda_sgd_options o = {0,       (float)real(), chance(50) ? 0 : (float)real(), 0, number(), maybe(),
                          maybe(), maybe()};
    coda_sgd(graph_any(), value(), value(), maybe(), maybe(), BOXED(o));
    return SILENT;
}

static int call_coda_muon(void)
{
    coda_muon_options o = {
        0,       (float)real(), 0.9f,   0, (int)below(3), (int)below(7), (coda_dtype)below(5),
        maybe(), maybe(),       maybe()};
    coda_muon(graph_any(), value(), value(), maybe(), maybe(), BOXED(o));
    return SILENT;
}

static int call_coda_norm_squared(void)
{
    coda_value x[2] = {value(), maybe()};
    coda_norm_squared(graph_any(), chance(95) ? x : NULL, (int)below(3));
    return SILENT;
}

static int call_coda_linear_cross_entropy(void)
{
    coda_linear_cross_entropy_options o = {.ignore_index = (int32_t)number(),
                                           .reduction = (coda_reduction)below(4),
                                           .ignore_zero = (int)below(2),
                                           .softcap = chance(70) ? 0 : 2,
                                           .rows = number()};
    coda_graph *g = graph_any();
    return built(g, coda_linear_cross_entropy(g, value(), value(), value(), BOXED(o)));
}

static int call_coda_consume(void)
{
    coda_consume(graph_any(), value());
    return SILENT;
}
static int call_coda_graph_find(void) { return coda_graph_find(graph_any(), name()).id ? CODA_OK : SILENT; }
