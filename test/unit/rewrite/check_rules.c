/* check_rules.c -- rewrites a text and looks at what has become of it. */
#include "check_rules.h" /* before check.h, which has a macro called fail */

#include "tests.h" /* last: Check has a macro named fail */
#include <string.h>

static void list_operations(const graph *g, struct text *t)
{
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        if (op_is_leaf(n->op)) continue;
        text_printf(t, "%s%s", t->length ? " " : "", n->prim ? n->prim->name : op_info[n->op].text);
    }
}

int rules_fired(const struct rewrite_log *log, const char *rule)
{
    int n = 0;
    for (int i = 0; i < log->events; i++) n += !strcmp(log->event[i].rule, rule);
    return n;
}

graph *rules_check(const char *text, struct rewrite_options opt, const char *rule, const char *want)
{
    struct rewrite_log log = {0};
    struct text got = {0};
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    graph *r = rewrite(g, &opt, &log);
    ck_assert_msg(r != NULL, "%s", coda_error());
    list_operations(r, &got);
    if (want) ck_assert_str_eq(text_str(&got), want);
    if (rule && *rule == '-')
        ck_assert_msg(rules_fired(&log, rule + 1) == 0, "%s fired on\n%s", rule + 1, text);
    else if (rule) ck_assert_msg(rules_fired(&log, rule) > 0, "%s did not fire on\n%s", rule, text);
    rewrite_log_free(&log);
    text_free(&got);
    graph_free(g);
    return r;
}

void rules_expect(const char *text, struct rewrite_options opt, const char *rule, const char *want)
{
    graph_free(rules_check(text, opt, rule, want));
}

void rules_expect_line(const graph *g, const char *op, const char *want)
{
    for (int i = 0; i < g->nodes; i++) {
        const char *name = g->node[i].prim ? g->node[i].prim->name : op_info[g->node[i].op].text;
        if (strcmp(name, op) != 0) continue;
        struct text t = {0};
        node_print(g, i, &t);
        ck_assert_msg(!strncmp(text_str(&t), want, strlen(want)), "%s instead of %s", text_str(&t), want);
        text_free(&t);
        return;
    }
    ck_abort_msg("no %s", op);
}
