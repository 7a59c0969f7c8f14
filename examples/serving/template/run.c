/*
 * run.c -- runs statements: output, scopes, loops, macros, within limits.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

enum { ASK_EVERY = 1000 }; /* steps between two questions to the deadline */

/* ---- Limits ---- */

bool run_fail(struct run *r, const char *format, ...)
{
    char what[260];
    va_list args;
    if (r->failed) return false;
    r->failed = true;
    r->why = REFUSED_INPUT;
    va_start(args, format);
    plain_vline(what, sizeof what, format, args);
    va_end(args);
    return fault_set(r->fault, "chat template: line %d: %s", r->line, what);
}

static bool ask_deadline(struct run *r)
{
    int why = deadline_passed(r->deadline);
    r->asked = r->steps;
    if (!why) return true;
    run_fail(r, why == REFUSED_LATE ? "it takes too long" : "nobody waits for its text any more");
    r->why = why;
    return false;
}

bool run_work(struct run *r, size_t steps)
{
    if (r->failed) return false;
    r->steps += (int64_t)steps;
    if (r->steps - r->asked >= ASK_EVERY && !ask_deadline(r)) return false;
    return r->steps <= TEMPLATE_STEPS || run_fail(r, "more than %d steps", TEMPLATE_STEPS);
}

bool run_read(struct run *r, size_t bytes)
{
    enum { BYTES_A_STEP = 64 };
    return run_work(r, 1 + bytes / BYTES_A_STEP);
}

bool run_enter(struct run *r)
{
    if (r->failed) return false;
    return ++r->depth <= 3 * TEMPLATE_DEPTH || run_fail(r, "more than %d levels", 3 * TEMPLATE_DEPTH);
}

void run_leave(struct run *r) { r->depth--; }

void run_write(struct run *r, const char *text, size_t bytes)
{
    if (!run_read(r, bytes)) return;
    r->written += bytes;
    if (r->written > TEMPLATE_OUTPUT) {
        run_fail(r, "a text of more than %d bytes", TEMPLATE_OUTPUT);
        return;
    }
    text_add(r->out, text, bytes);
}

struct value run_captured(struct run *r, const struct node *body)
{
    struct text t = {0}, *out = r->out;
    r->out = &t;
    run_body(r, body);
    r->out = out;
    return text_value(r, &t);
}

/* ---- Scopes ---- */

struct scope *scope_push(struct run *r)
{
    struct scope *s = arena_take(&r->arena, sizeof *s);
    if (!s) return run_fail(r, "values of more than %d bytes", TEMPLATE_MEMORY), r->scope;
    s->up = r->scope;
    return r->scope = s;
}

static struct variable *find_in(struct run *r, const struct scope *s, struct string name)
{
    for (struct variable *v = s->first; v && run_read(r, name.bytes); v = v->next)
        if (string_equal(v->name, name)) return v;
    return NULL;
}

void scope_set(struct run *r, struct scope *s, struct string name, struct value value)
{
    struct variable *v = find_in(r, s, name);
    if (!v) {
        if (!(v = arena_take(&r->arena, sizeof *v))) {
            run_fail(r, "values of more than %d bytes", TEMPLATE_MEMORY);
            return;
        }
        v->name = name;
        v->next = s->first;
        s->first = v;
    }
    v->value = value;
}

const struct value *scope_find(struct run *r, struct string name)
{
    for (const struct scope *s = r->scope; s && !r->failed; s = s->up) {
        const struct variable *v = find_in(r, s, name);
        if (v) return &v->value;
    }
    return NULL;
}

static void assign_attribute(struct run *r, const struct node *target, struct value v)
{
    const struct value *of = scope_find(r, target->a->name);
    if (!of || of->kind != VALUE_DICT || !of->is.dict->namespace)
        run_fail(r, "%.*s is no namespace", (int)(target->a->name.bytes < 40 ? target->a->name.bytes : 40),
                 target->a->name.data);
    else dict_set(r, of->is.dict, string_value(r, target->name.data, target->name.bytes), v);
}

void run_assign(struct run *r, const struct node *target, struct value v)
{
    if (target->kind == NODE_NAME) return scope_set(r, r->scope, target->name, v);
    if (target->kind == NODE_ATTRIBUTE) return assign_attribute(r, target, v);
    const struct list *all = value_items(r, v);
    size_t i = 0, wanted = 0;
    for (const struct node *n = target->first; n; n = n->next) wanted++;
    if (all && all->count != wanted) run_fail(r, "%zu values for %zu names", all->count, wanted);
    for (const struct node *n = target->first; n && !r->failed; n = n->next) run_assign(r, n, all->of[i++]);
}

/* ---- Loops ---- */

/* The items for which a loop's condition holds. */
static const struct list *chosen(struct run *r, const struct node *n, const struct list *all)
{
    struct scope *outside = r->scope;
    struct value some = list_value(r, LIST_PLAIN);
    for (size_t i = 0; i < all->count && !r->failed; i++) {
        scope_push(r);
        run_assign(r, n->a, all->of[i]);
        if (value_true(evaluate(r, n->c))) list_add(r, some.is.list, all->of[i]);
        r->scope = outside;
    }
    return some.is.list;
}

static void run_items(struct run *r, const struct node *n, const struct list *all)
{
    struct scope *outside = r->scope;
    struct loop *loop = arena_take(&r->arena, sizeof *loop);
    if (!loop) {
        run_fail(r, "values of more than %d bytes", TEMPLATE_MEMORY);
        return;
    }
    *loop = (struct loop){.items = all};
    for (; loop->at < all->count && run_work(r, 1) && r->leaving != LEAVING_BREAK; loop->at++) {
        struct scope *s = scope_push(r);
        r->leaving = LEAVING_NOT;
        scope_set(r, s, (struct string){"loop", 4}, (struct value){VALUE_LOOP, {.loop = loop}});
        run_assign(r, n->a, all->of[loop->at]);
        run_body(r, n->body);
        r->scope = outside;
    }
    r->leaving = LEAVING_NOT;
}

static void run_for(struct run *r, const struct node *n)
{
    const struct list *all = value_items(r, evaluate(r, n->b));
    if (all && n->c) all = chosen(r, n, all);
    if (r->failed) return;
    if (all->count) run_items(r, n, all);
    else run_body(r, n->otherwise);
}

/* ---- Macros ---- */

static const struct value *named_argument(struct run *r, const struct dict *named, struct string name)
{
    struct value key = {VALUE_STRING, {.string = &name}};
    return named ? dict_get(r, named, key) : NULL;
}

/* What a call block gives: only to a macro that says `caller`, which has no other one. 1 if it is taken. */
static size_t bind_caller(struct run *r, const struct macro *m, const struct dict *named)
{
    const struct string name = {"caller", 6};
    const struct value *caller = named_argument(r, named, name);
    if (r->failed || !value_true(m->node->constant)) return 0;
    scope_set(r, r->scope, name, caller ? *caller : undefined_value());
    return caller != NULL;
}

static void bind(struct run *r, const struct macro *m, const struct list *args, const struct dict *named)
{
    size_t i = 0, taken = 0;
    for (const struct node *p = m->node->first; p && !r->failed; p = p->next, i++) {
        const struct value *given = named_argument(r, named, p->name);
        struct value v = undefined_value();
        if (given) taken++;
        if (i < args->count) v = args->of[i];
        else if (given) v = *given;
        else if (p->a) v = evaluate(r, p->a);
        scope_set(r, r->scope, p->name, v);
    }
    taken += bind_caller(r, m, named);
    if (args->count > i) run_fail(r, "%zu arguments for a macro of %zu", args->count, i);
    if (named && named->count > taken) run_fail(r, "an argument that the macro has not");
}

struct value macro_call(struct run *r, const struct macro *m, const struct list *args,
                        const struct dict *named)
{
    struct scope *outside = r->scope;
    struct value v = undefined_value();
    if (!run_enter(r)) return v;
    r->scope = m->scope;
    scope_push(r);
    bind(r, m, args, named);
    if (!r->failed) v = run_captured(r, m->node->body);
    r->scope = outside;
    run_leave(r);
    return v;
}

static struct value macro_value(struct run *r, const struct node *n)
{
    struct macro *m = arena_take(&r->arena, sizeof *m);
    if (!m) return run_fail(r, "values of more than %d bytes", TEMPLATE_MEMORY), undefined_value();
    *m = (struct macro){n, r->scope};
    return (struct value){VALUE_MACRO, {.macro = m}};
}

/* The call, with one argument more: what writes the body. */
static void run_calls(struct run *r, const struct node *n)
{
    struct node call = *n->a, caller = {.kind = NODE_NAMED, .name = {"caller", 6}};
    struct node body = {.kind = NODE_CONSTANT, .constant = macro_value(r, n->b)};
    caller.a = &body;
    caller.next = call.first;
    call.first = &caller;
    struct value v = value_string(r, evaluate(r, &call));
    if (!r->failed) run_write(r, v.is.string->data, v.is.string->bytes);
}

/* ---- Statements ---- */

static void show(struct run *r, struct value v)
{
    if (r->failed || v.kind == VALUE_UNDEFINED) return;
    v = value_string(r, v);
    if (!r->failed) run_write(r, v.is.string->data, v.is.string->bytes);
}

static void run_if(struct run *r, const struct node *n)
{
    for (; n && !r->failed; n = n->c) {
        r->line = n->line;
        if (value_true(evaluate(r, n->a))) return run_body(r, n->body);
        if (!n->c) return run_body(r, n->otherwise);
    }
}

/* A body's text through filters, the innermost of which has no value of its own. */
static struct value filtered(struct run *r, const struct node *filters, struct value text)
{
    struct string name = {" text", 5};
    struct scope *outside = r->scope;
    if (!filters) return text;
    scope_set(r, scope_push(r), name, text);
    struct value v = evaluate(r, filters);
    r->scope = outside;
    return v;
}

static void run_with(struct run *r, const struct node *n)
{
    struct scope *outside = r->scope, *inside = scope_push(r);
    for (const struct node *one = n->first; one && !r->failed; one = one->next) {
        r->scope = outside; /* values do not see their neighbours */
        struct value v = evaluate(r, one->b);
        r->scope = inside;
        run_assign(r, one->a, v);
    }
    run_body(r, n->body);
    r->scope = outside;
}

static struct value captured_apart(struct run *r, const struct node *body)
{
    struct scope *outside = r->scope;
    scope_push(r);
    struct value v = run_captured(r, body);
    r->scope = outside;
    return v;
}

static void run_statement(struct run *r, const struct node *n)
{
    switch (n->kind) {
    case NODE_TEXT: run_write(r, n->name.data, n->name.bytes); break;
    case NODE_SHOW: show(r, evaluate(r, n->a)); break;
    case NODE_IF: run_if(r, n); break;
    case NODE_FOR: run_for(r, n); break;
    case NODE_SET: run_assign(r, n->a, evaluate(r, n->b)); break;
    case NODE_CAPTURE: run_assign(r, n->a, filtered(r, n->b, captured_apart(r, n->body))); break;
    case NODE_MACRO: scope_set(r, r->scope, n->name, macro_value(r, n)); break;
    case NODE_CALLS: run_calls(r, n); break;
    case NODE_FILTERED: show(r, filtered(r, n->b, captured_apart(r, n->body))); break;
    case NODE_WITH: run_with(r, n); break;
    case NODE_BODY: run_body(r, n->body); break;
    case NODE_BREAK: r->leaving = LEAVING_BREAK; break;
    case NODE_CONTINUE: r->leaving = LEAVING_CONTINUE; break;
    default: run_fail(r, "a statement that is none");
    }
}

void run_body(struct run *r, const struct node *body)
{
    if (!run_enter(r)) return;
    for (const struct node *n = body; n && run_work(r, 1) && r->leaving == LEAVING_NOT; n = n->next) {
        r->line = n->line;
        run_statement(r, n);
    }
    run_leave(r);
}

/* ---- A template ---- */

static void add_globals(struct run *r, const json_t *variables)
{
    const char *name;
    json_t *v;
    struct scope *s = scope_push(r);
    for (const struct function *f = template_functions; f->callee.name; f++)
        scope_set(r, s, (struct string){f->callee.name, strlen(f->callee.name)},
                  (struct value){VALUE_FUNCTION, {.function = f}});
    json_object_foreach((json_t *)(uintptr_t)variables, name, v) if (!r->failed)
        scope_set(r, s, (struct string){name, strlen(name)}, json_value(r, v));
}

int template_render(const struct template *t, const json_t *variables, const struct deadline *deadline,
                    char **text, struct fault *f)
{
    struct text out = {0};
    struct run r = {.arena = {.most = TEMPLATE_MEMORY}, .fault = f, .out = &out, .line = 1};
    r.deadline = deadline;
    add_globals(&r, variables);
    run_body(&r, t->body);
    text_char(&out, 0);
    if (out.failed && !r.failed) run_fail(&r, "out of memory"), r.why = REFUSED_MEMORY;
    arena_free(&r.arena);
    if (r.failed) text_free(&out);
    *text = out.data;
    return r.failed ? r.why : (int)out.size - 1;
}
