/*
 * tool_html.c -- coda explain --html: a page of what became of a graph. One file, which loads nothing and has
 * no script; all that comes from the graph goes through html_put().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "tensor.h"
#include "tool_stages.h"

/* ---- Text ---- */

void html_put_some(FILE *f, const char *text, size_t size)
{
    for (const char *end = text + size; text < end;) {
        int n = utf8_length(text, (size_t)(end - text));
        if (n <= 0) fputs(*text == '\n' || *text == '\t' ? (const char[]){*text, 0} : "&#xfffd;", f);
        else if (*text == '<') fputs("&lt;", f);
        else if (*text == '>') fputs("&gt;", f);
        else if (*text == '&') fputs("&amp;", f);
        else if (*text == '"') fputs("&quot;", f);
        else if (*text == '\'') fputs("&#39;", f);
        else fwrite(text, 1, (size_t)n, f);
        text += n > 0 ? n : 1;
    }
}

void html_put(FILE *f, const char *text) { html_put_some(f, text, strlen(text)); }

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#222;--paper:#fff;--faint:#767676;--line:#999;--leaf:#eee;--l:88%}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#181818;--faint:#999;--line:#777;--leaf:#"
    "2c2c2c;"
    "--l:26%}}\n"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;"
    "margin:2em auto;padding:0 1em}\n"
    "h1{font-size:1.5em}h2{margin-top:2em;border-bottom:1px solid var(--line)}h3{margin:1.2em 0 .3em}\n"
    "pre{font:12px/1.4 ui-monospace,monospace;overflow-x:auto;margin:.3em 0;white-space:pre-wrap}\n"
    "table{border-collapse:collapse}td,th{padding:.15em .9em .15em 0;text-align:left;vertical-align:top}\n"
    ".two{display:grid;grid-template-columns:1fr 1fr;gap:1em}.two pre{border-left:3px solid var(--line);"
    "padding-left:.6em}\n"
    ".was{border-color:#c55!important}.is{border-color:#4a4!important}.kind{color:var(--faint)}\n"
    ".scroll{overflow:auto;max-height:80vh;border:1px solid var(--line);border-radius:6px}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--ink);text-anchor:middle}svg .of,svg "
    ".bytes{font-size:10px;"
    "fill:var(--faint)}svg .chip~.of{fill:var(--ink)}\n"
    "svg .head{text-anchor:start;font-weight:bold}svg .bytes{text-anchor:end}svg .value{fill:hsl(var(--h) "
    "55% var(--l));"
    "stroke:var(--line);--h:0}\n"
    "svg .value:not([style]){fill:var(--paper)}svg .leaf{fill:var(--leaf);stroke:var(--line)}svg "
    ".chip{fill:var(--paper);"
    "stroke:var(--line)}\n"
    "svg .edge path{fill:none;stroke:var(--line);stroke-width:1.2}svg .edge .tip{fill:var(--line)}\n"
    "@media "
    "print{.scroll{max-height:none;overflow:visible}svg{max-width:100%;height:auto}details{display:block}}\n"
    "</style>\n";

/* ---- Parts ---- */

static void put_totals(FILE *f, const coda_plan *p)
{
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    coda_plan_stats_get(p, &s);
    fprintf(f,
            "<table><tr><th></th><th>as planned</th><th>a kernel for each operation</th></tr>\n"
            "<tr><td>launches</td><td>%d</td><td>%d</td></tr>\n"
            "<tr><td>bytes read and written</td><td>%.3f MB</td><td>%.3f MB</td></tr>\n",
            s.launches, s.launches_unfused, (double)s.bytes / 1e6, (double)s.bytes_unfused / 1e6);
    fprintf(f,
            "<tr><td>FLOPs of products</td><td>%.3f G</td><td></td></tr>\n"
            "<tr><td>workspace, prepared memory</td><td>%zu, %zu bytes</td><td></td></tr></table>\n",
            s.flops / 1e9, coda_plan_workspace(p), coda_plan_prepared(p));
}

static void put_notes(FILE *f, const struct stage *g)
{
    for (int i = 0; i < g->notes; i++) {
        fputs("<p><span class=\"kind\">", f);
        html_put(f, g->note[i].kind);
        fputs("</span> ", f);
        html_put(f, g->note[i].text);
        fputs("</p>\n", f);
    }
}

static void put_lines(FILE *f, const struct stages *s, const struct stage *g, const bool *chosen,
                      const char *kind)
{
    fprintf(f, "<pre class=\"%s\">", kind);
    for (int i = 0; i < g->values; i++) {
        if (!chosen[i]) continue;
        value_put(f, s, g, i);
        fputc('\n', f);
    }
    fputs("</pre>\n", f);
}

/* What a pass took away, beside what it put there. */
static bool put_stage(FILE *f, const struct stages *s, int i)
{
    struct differences d;
    const struct stage *g = &s->stage[i];
    bool good = stages_differ(&d, s, i - 1), differs = false;
    for (int k = 0; good && k < g->values; k++) differs = differs || d.after[k];
    for (int k = 0; good && k < g[-1].values; k++) differs = differs || d.before[k];
    if (good && (differs || g->notes)) {
        fprintf(f, "<h3>%d. ", i);
        html_put(f, g->name);
        fputs("</h3>\n", f);
        put_notes(f, g);
        fputs("<div class=\"two\">\n", f);
        put_lines(f, s, g - 1, d.before, "was");
        put_lines(f, s, g, d.after, "is");
        fputs("</div>\n", f);
    }
    free(d.before);
    free(d.after);
    return good;
}

/* The lines of the derivation that no pass of the rewriting wrote: what fusion did. */
static void put_fusion(FILE *f, const char *derivation, const struct stages *s)
{
    int rewrites = 0;
    for (int i = 0; i < s->stages; i++) rewrites += s->stage[i].notes;
    fputs("<h3>Fusion</h3>\n<pre>", f);
    for (const char *line = derivation; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        if (!line[n - 1]) n--;
        if (rewrites-- <= 0) html_put_some(f, line, n);
        line += n;
    }
    fputs("</pre>\n", f);
}

/* A program's text: from its "@3 " to the next one's. */
static void put_card(FILE *f, const struct stages *s, int i, const char *text, size_t size)
{
    const struct stage *g = &s->stage[s->stages - 1];
    const struct work *w = i < s->programs ? &s->program[i] : NULL;
    size_t title = strcspn(text, "\n");
    fputs("<h3>", f);
    html_put_some(f, text, title < size ? title : size);
    fputs("</h3>\n", f);
    if (w) {
        double bytes = plain_number(w->bytes, NULL), flops = plain_number(w->flops, NULL);
        fprintf(f, "<p>%.3f MB read and written, %.3f GFLOP, %.1f FLOPs a byte; computes", bytes / 1e6,
                flops / 1e9, bytes > 0 ? flops / bytes : 0);
        for (int k = 0; k < w->members; k++) {
            const struct value *v = &g->value[w->member[k]];
            fputs(k ? ", " : " ", f);
            html_put(f, v->name), fputs(" = ", f), html_put(f, v->op);
        }
        fputs("</p>\n", f);
    }
    fputs("<pre>", f);
    if (title < size) html_put_some(f, text + title + 1, size - title - 1);
    fputs("</pre>\n", f);
}

static void put_cards(FILE *f, const struct stages *s, const char *plan)
{
    const char *at = strstr(plan, "\n@");
    for (int i = 0; at; i++) {
        const char *text = at + 1, *next = strstr(text, "\n@"), *end = next ? next + 1 : strstr(text, "\n;");
        put_card(f, s, i, text, end ? (size_t)(end - text) : strlen(text));
        at = next;
    }
}

static void put_details(FILE *f, const char *title, const char *text)
{
    fprintf(f, "<details><summary>%s</summary><pre>", title);
    html_put(f, text);
    fputs("</pre></details>\n", f);
}

struct texts {
    char *derivation, *plan, *reasons, *given, *rewritten;
};

static bool put_page(FILE *f, const struct options *opt, const coda_plan *p, struct stages *s,
                     const struct texts *t)
{
    bool good = true;
    fputs(head, f);
    fputs("<title>", f), html_put(f, opt->file), fputs("</title></head><body>\n<h1>", f),
        html_put(f, opt->file);
    fprintf(f, "</h1>\n<p class=\"kind\">libcoda %s</p>\n", coda_version());
    put_totals(f, p);
    fputs("<h2>Programs</h2>\n<p>One below the other in launch order: what each computes, and what it hands "
          "on.</p>\n",
          f);
    fputs("<div class=\"scroll\">", f), svg_programs(f, s), fputs("</div>\n", f);
    fputs("<h2>Graph as planned</h2>\n<p>A colour is a program.</p>\n<div class=\"scroll\">", f);
    svg_graph(f, s, &s->stage[s->stages - 1], true);
    fputs("</div>\n<h2>Graph as given</h2>\n<div class=\"scroll\">", f);
    svg_graph(f, s, &s->stage[0], false);
    fputs("</div>\n<h2>Derivation</h2>\n<p>Each rewrite, with the lines that it took away and those that it "
          "put "
          "there. A value keeps its name from one to the next.</p>\n",
          f);
    for (int i = 1; i < s->stages && good; i++) good = put_stage(f, s, i);
    put_fusion(f, t->derivation, s);
    fputs("<h2>Each program</h2>\n", f), put_cards(f, s, t->plan);
    fputs("<h2>Why they are apart</h2>\n<pre>", f), html_put(f, t->reasons),
        fputs("</pre>\n<h2>Texts</h2>\n", f);
    put_details(f, "The graph as given", t->given);
    put_details(f, "The graph after all rewrites", t->rewritten);
    fputs("</body></html>\n", f);
    return good;
}

/* ---- The command ---- */

static int write_page(const struct options *opt, const coda_plan *p, struct stages *s, const struct texts *t)
{
    bool standard = !strcmp(opt->html, "-");
    FILE *f = standard ? output : fopen(opt->html, "wbe");
    if (!f) return complain("%s: %s", opt->html, strerror(errno));
    bool good = put_page(f, opt, p, s, t), bad = ferror(f);
    if (!standard && (fclose(f) || bad)) return complain("%s: cannot be written", opt->html);
    return good ? 0 : complain("out of memory");
}

int explain_html(const struct options *opt, const coda_plan *p)
{
    struct stages s = {0};
    char *text = plan_text(p, CODA_TEXT_STAGES);
    struct texts t = {plan_text(p, CODA_TEXT_DERIVATION), plan_text(p, CODA_TEXT_PLAN),
                      plan_text(p, CODA_TEXT_REASONS), plan_text(p, CODA_TEXT_GRAPH),
                      plan_text(p, CODA_TEXT_REWRITTEN)};
    bool all = text && t.derivation && t.plan && t.reasons && t.given && t.rewritten;
    int bad = !all                     ? complain("%s: there is no text of the plan", opt->file)
              : !stages_read(&s, text) ? complain("%s: the stages of the plan cannot be read", opt->file)
                                       : write_page(opt, p, &s, &t);
    if (all) stages_free(&s);
    else free(text);
    char *const each[] = {t.derivation, t.plan, t.reasons, t.given, t.rewritten};
    for (int i = 0; i < 5; i++) free(each[i]);
    return bad;
}
