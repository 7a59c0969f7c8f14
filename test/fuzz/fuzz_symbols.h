/* fuzz_symbols.h -- a part of fuzz_api.c: the calls that make symbols, compute with them and bind them. */
static int dimension(const coda_graph *g, coda_dim d)
{
    return d != INT64_MIN ? CODA_OK : g ? SILENT : CODA_E_INVALID;
}
static int call_coda_symbol(void)
{
    coda_graph *g = graph_any();
    if (chance(20)) return dimension(g, coda_symbol(g, name(), number(), number(), number()));
    return dimension(g, coda_symbol(g, name(), below(3), 2 + below(9), 1));
}
#define ARITHMETIC(name)                                                                                     \
    static int call_##name(void)                                                                             \
    {                                                                                                        \
        coda_graph *g = graph_any();                                                                         \
        return dimension(g, name(g, extent(g), extent(g)));                                                  \
    }
ARITHMETIC(coda_dim_mul)
ARITHMETIC(coda_dim_add)
ARITHMETIC(coda_dim_sub)
static int call_coda_dim_print(void)
{
    size_t size;
    char *buf = buffer(&size);
    coda_graph *g = graph_any();
    return sign(coda_dim_print(g, extent(g), buf, size));
}
static int call_coda_graph_symbols(void) { return coda_graph_symbols(graph_any()), SILENT; }
static int call_coda_graph_symbol(void)
{
    return coda_graph_symbol(graph_any(), (int)number(), filled(sizeof(coda_symbol_info)));
}
static int call_coda_graph_bind(void)
{
    int64_t values[20];
    coda_graph *g = graph_any(), *out = NULL;
    for (int i = 0; i < 20; i++) values[i] = chance(95) ? 2 : number();
    int status = coda_graph_bind(&out, g, values, chance(90) ? coda_graph_symbols(g) : (int)below(20));
    coda_graph_free(out);
    return status;
}
