/*
 * graph_parse.c -- text to graph, the inverse of graph_print.c, which shows the form.
 *
 *     text      = { [ dim | map | value | output ] [ comment ] newline }
 *     dim       = "dim" "%" name "=" integer ".." integer [ "step" integer ]
 *     map       = "map" name "(" integer [ ";" integer ] ")" string [ "{" grad { "," grad } "}" ]
 *     grad      = "grad" digit "=" ( word | "0" | "1" )   the derivative by that operand: a map, or a number
 *     value     = "%" name "=" ( leaf | operation ) [ "@" scope ]
 *     leaf      = ( "input" | "weight" | "state" | "scalar" ) dtype "[" [ extents ] "]" [ strides ]
 *                 [ "{" "consumed" "=" ( "0" | "1" ) "}" ]          of an input
 *     operation = word [ operand { "," operand } ] [ "{" key "=" datum { "," ... } "}" ] [ "@" value ]
 *     scope     = letters, digits and the signs _ . - / :
 *     datum     = number | dtype | extent | map
 *     map       = word [ "{" key "=" number { "," ... } "}" ]      for the key `score` of attention
 *     operand   = "%" name | "_"
 *     output    = "output" "%" name ( "=" | "+=" ) "%" name [ strides ]
 *     strides   = "stride=[" [ extents ] "]"
 *     extents   = extent { "," extent }
 *     extent    = [ "-" ] term { ( "+" | "-" ) term }         of symbols: those of `dim`, without "%"
 *     term      = ( integer | name ) { "*" ( integer | name ) }
 *     comment   = ( ";" | "#" ) ... to the end of the line
 *
 * A person may call a value anything; printing renumbers. Nothing here judges a graph: it is appended
 * as the builder would, under the same checks. Memory is bounded by a multiple of the text's length.
 */
#include "parser.h"
#include "suggest.h"

#include <string.h>

/* ---- Values ---- */

/* What others write for an operand: a number, or a name alone. */
static coda_status refuse_operand(struct parser *p)
{
    char c = parse_peek(p);
    if ((c >= '0' && c <= '9') || ((c == '-' || c == '.') && p->at[1] >= '0' && p->at[1] <= '9'))
        return fail(CODA_E_INVALID,
                    "`%.*s`: a number is a value of its own: %%c = constant {to=f32, value=...}",
                    parse_rest(p), p->at);
    return parse_expect(p, '%');
}

static coda_status read_value(struct parser *p, int *value)
{
    char name[WORD_SIZE];
    if (parse_peek(p) != '%') return refuse_operand(p);
    coda_status s = parse_name(p, name);
    if (s != CODA_OK) return s;
    *value = names_find(&p->values, name, -1);
    if (*value >= 0) return CODA_OK;
    return fail(CODA_E_INVALID, "%%%.40s is not defined above%s", name, suggest_value(&p->values, name).text);
}

static coda_status define(struct parser *p, const char *name, const struct node *n)
{
    p->g->text_name = name;
    p->g->text_scope = n->scope;
    int value = graph_append(p->g, n);
    p->g->text_name = p->g->text_scope = NULL;
    if (value < 0) return p->g->status;
    const char *key = arena_string(&p->arena, name);
    return key && names_add(&p->values, &p->arena, key, value) ? CODA_OK
                                                               : fail(CODA_E_MEMORY, "out of memory");
}

/* Strides, or the dense ones. */
static coda_status read_strides(struct parser *p, const struct type *type, int64_t *stride)
{
    char word[WORD_SIZE];
    int count;
    if (parse_peek(p) != 's') return CODA_OK;
    coda_status s = parse_word(p, "stride", "", word);
    if (s == CODA_OK && strcmp(word, "stride") != 0)
        return fail(CODA_E_INVALID, "expected `stride`, got `%.40s`", word);
    if (s == CODA_OK) s = parse_expect(p, '=');
    if (s == CODA_OK) s = parse_extents(p, stride, &count);
    if (s == CODA_OK && count != type->rank)
        return fail(CODA_E_INVALID, "%d strides for %d dimensions", count, type->rank);
    return s;
}

/* "[-1,64]", "[?,64]": as others write what differs from run to run. */
static coda_status refuse_unknown(struct parser *p)
{
    if (parse_peek(p) != '[') return CODA_OK;
    for (const char *c = p->at + 1; *c && *c != ']' && *c != '\n'; c++)
        if ((c[-1] == '[' || c[-1] == ',') && (*c == '?' || (*c == '-' && c[1] == '1' && strchr(",]", c[2]))))
            return fail(CODA_E_INVALID,
                        "`%.*s`: a dimension that runs choose has a name, from `dim %%T = 1..4096` above",
                        parse_rest(p), p->at);
    return CODA_OK;
}

static coda_status read_leaf(struct parser *p, struct node *n)
{
    if (n->op == OP_GROUP) return CODA_OK;
    coda_status s = parse_dtype(p, &n->type.dtype);
    if (s == CODA_OK && n->op == OP_SCALAR) return CODA_OK;
    if (s == CODA_OK) s = refuse_unknown(p);
    if (s == CODA_OK) s = parse_extents(p, n->type.dim, &n->type.rank);
    n->type.dims = p->g->dims;
    if (s == CODA_OK) s = type_check(op_info[n->op].text, n->name, &n->type);
    if (s != CODA_OK) return s;
    dense_strides(&n->type, n->stride);
    return read_strides(p, &n->type, n->stride);
}

/* ---- Operations ---- */

/* An operation by its word, or else a primitive. */
static coda_status read_op(struct parser *p, struct node *n)
{
    char word[WORD_SIZE];
    coda_status s = parse_word(p, "an operation", "_.:", word);
    if (s != CODA_OK) return s;
    for (int i = 0; i < OP_COUNT; i++) {
        if (i == OP_MAP || i == OP_REDUCE || strcmp(word, op_info[i].text) != 0) continue;
        n->op = (enum op)i;
        return CODA_OK;
    }
    n->prim = graph_find_prim(p->g, word);
    if (!n->prim)
        return fail(CODA_E_INVALID, "unknown operation `%.40s`%s", word,
                    suggest_operation(p->g, word, SUGGEST_ALL).text);
    n->op = n->prim->kind == PRIM_MAP ? OP_MAP : OP_REDUCE;
    return CODA_OK;
}

/* The node's operands have place for one more. */
static bool more_operands(struct parser *p, struct node *n)
{
    int *operand = arena_grow(&p->arena, p->operand, n->nin, &p->operands, sizeof *operand);
    if (!operand) return false;
    p->operand = n->in = operand;
    return true;
}

/* Operands that begin neither with "%" nor with "_", as in other languages. */
static coda_status refuse_operands(struct parser *p, const struct node *n)
{
    char c = *p->at, small = (char)(c | 32);
    if (op_info[n->op].most == 0) return CODA_OK;
    if (c == '(')
        return fail(CODA_E_INVALID, "`%.*s`: operands have no parentheses: %s %%a, %%b", parse_rest(p), p->at,
                    node_text(n));
    if ((small >= 'a' && small <= 'z') || (c >= '0' && c <= '9'))
        return fail(CODA_E_INVALID, "`%.*s`: operands begin with %%: %s %%a, %%b", parse_rest(p), p->at,
                    node_text(n));
    return CODA_OK;
}

static coda_status read_operands(struct parser *p, struct node *n)
{
    if (parse_peek(p) != '%' && *p->at != '_') return refuse_operands(p, n);
    do {
        if (!more_operands(p, n)) return fail(CODA_E_MEMORY, "out of memory");
        int *value = &p->operand[n->nin++];
        *value = -1;
        if (parse_accept(p, '_')) continue;
        coda_status s = read_value(p, value);
        if (s != CODA_OK) return s;
    } while (parse_accept(p, ','));
    return CODA_OK;
}

static coda_status read_origin(struct parser *p, struct node *n)
{
    int value;
    coda_status s = read_value(p, &value);
    if (s == CODA_OK) n->origin = p->g->node[value].origin;
    return s;
}

static coda_status read_scope(struct parser *p, struct node *n)
{
    char word[WORD_SIZE];
    const char *scope = word;
    coda_status s = parse_word(p, "a scope", SCOPE_SIGNS, word);
    if (s == CODA_OK && n->scope) return fail(CODA_E_INVALID, "the scope is given twice");
    if (s == CODA_OK) s = graph_scope(p->g, &scope);
    n->scope = s == CODA_OK ? scope : NULL;
    return s;
}

/* "@%2 @layers.17.mlp" */
static coda_status read_places(struct parser *p, struct node *n)
{
    coda_status s = CODA_OK;
    if (parse_accept(p, '@')) s = parse_peek(p) == '%' ? read_origin(p, n) : read_scope(p, n);
    if (s == CODA_OK && parse_accept(p, '@')) s = read_scope(p, n);
    return s;
}

/* ---- Lines ---- */

static coda_status end_line(struct parser *p)
{
    char c = parse_peek(p);
    const char *hint = c == '/'   ? "; comments begin with ; or #"
                       : c == '%' ? "; commas between operands"
                                  : "";
    if (c == ';' || c == '#') p->at += strcspn(p->at, "\n");
    else if (c && c != '\n')
        return fail(CODA_E_INVALID, "trailing text `%.*s`%s", parse_rest(p), p->at, hint);
    return CODA_OK;
}

static coda_status read_value_line(struct parser *p)
{
    char name[WORD_SIZE];
    struct node n = {.in = p->operand, .origin = -1, .name = name};
    coda_status s = parse_name(p, name);
    if (s != CODA_OK) return s;
    if (names_find(&p->values, name, -1) >= 0)
        return fail(CODA_E_INVALID, "%%%.40s is defined already", name);
    if ((s = parse_expect(p, '=')) != CODA_OK || (s = read_op(p, &n)) != CODA_OK) return s;
    s = op_is_leaf(n.op) ? read_leaf(p, &n) : read_operands(p, &n);
    if (s == CODA_OK) s = parse_attributes(p, &n);
    if (s == CODA_OK) s = read_places(p, &n);
    if (s == CODA_OK) s = end_line(p);
    return s == CODA_OK ? define(p, name, &n) : s;
}

static coda_status read_output_line(struct parser *p)
{
    char name[WORD_SIZE];
    int value;
    int64_t stride[CODA_MAX_RANK];
    coda_status s = parse_name(p, name);
    bool add = s == CODA_OK && parse_accept(p, '+');
    if (s == CODA_OK) s = parse_expect(p, '=');
    if (s == CODA_OK) s = read_value(p, &value);
    if (s != CODA_OK) return s;
    dense_strides(&p->g->node[value].type, stride);
    if ((s = read_strides(p, &p->g->node[value].type, stride)) != CODA_OK) return s;
    if ((s = end_line(p)) != CODA_OK) return s;
    if (add) graph_append_sum(p->g, name, value, stride);
    else graph_append_output(p->g, name, value, stride);
    return p->g->status;
}

/* " {grad0=NAME, grad2=0}", or nothing: names of a map's derivatives, by operand. */
static coda_status read_grads(struct parser *p, char name[PRIM_MAX_INPUTS][WORD_SIZE], const char **grad)
{
    if (!parse_accept(p, '{')) return CODA_OK;
    do {
        char key[WORD_SIZE];
        coda_status s = parse_word(p, "grad0 to grad3", "_", key);
        if (s != CODA_OK) return s;
        int i = strncmp(key, "grad", 4) == 0 && key[4] && !key[5] ? key[4] - '0' : -1;
        if (i < 0 || i >= PRIM_MAX_INPUTS)
            return fail(CODA_E_INVALID, "expected grad0 to grad%d, got `%.40s`", PRIM_MAX_INPUTS - 1, key);
        if (grad[i]) return fail(CODA_E_INVALID, "%s is given twice", key);
        if ((s = parse_expect(p, '=')) != CODA_OK) return s;
        if ((s = parse_word(p, "a map, 0 or 1", "_", name[i])) != CODA_OK) return s;
        grad[i] = name[i];
    } while (parse_accept(p, ','));
    return parse_expect(p, '}');
}

static coda_status read_map_line(struct parser *p)
{
    char name[WORD_SIZE], grad[PRIM_MAX_INPUTS][WORD_SIZE], *source = NULL;
    int64_t inputs = 0, params = 0;
    coda_map_def def = CODA_MAP_DEF_INIT;
    coda_status s = parse_word(p, "a name", "_", name);
    if (s == CODA_OK) s = parse_expect(p, '(');
    if (s == CODA_OK) s = parse_integer(p, &inputs);
    if (s == CODA_OK && parse_accept(p, ';')) s = parse_integer(p, &params);
    if (s == CODA_OK) s = parse_expect(p, ')');
    if (s == CODA_OK) s = parse_string(p, &source);
    if (s == CODA_OK) s = read_grads(p, grad, def.grad);
    if (s == CODA_OK) s = end_line(p);
    if (s != CODA_OK) return s;
    def.name = name, def.source = source;
    def.inputs = (int)MIN(MAX(inputs, -1), 99), def.params = (int)MIN(MAX(params, -1), 99);
    return graph_define_map(p->g, &def);
}

static coda_status read_range(struct parser *p, int64_t *least, int64_t *most)
{
    coda_status s = parse_integer(p, least);
    if (s == CODA_OK) s = parse_expect(p, '.');
    if (s == CODA_OK) s = parse_expect(p, '.');
    return s == CODA_OK ? parse_integer(p, most) : s;
}

static coda_status read_dim_line(struct parser *p)
{
    char name[WORD_SIZE], word[WORD_SIZE];
    int64_t least = 0, most = 0, multiple = 1;
    coda_status s = parse_name(p, name);
    if (s == CODA_OK) s = parse_expect(p, '=');
    if (s == CODA_OK) s = read_range(p, &least, &most);
    if (s == CODA_OK && parse_peek(p) == 's') {
        s = parse_word(p, "step", "", word);
        if (s == CODA_OK && strcmp(word, "step") != 0)
            return fail(CODA_E_INVALID, "expected `step`, got `%.40s`", word);
        if (s == CODA_OK) s = parse_integer(p, &multiple);
    }
    if (s == CODA_OK) s = end_line(p);
    if (s != CODA_OK) return s;
    int64_t d = graph_symbol(p->g, name, least, most, multiple);
    if (d == DIM_NONE) return p->g->status;
    const char *key = arena_string(&p->arena, name);
    return key && names_add(&p->symbols, &p->arena, key, (int)~d) ? CODA_OK
                                                                  : fail(CODA_E_MEMORY, "out of memory");
}

static coda_status read_line(struct parser *p)
{
    char word[WORD_SIZE];
    char c = parse_peek(p);
    if (c == '%') return read_value_line(p);
    if (!c || c == '\n' || c == ';' || c == '#' || c == '/') return end_line(p);
    coda_status s = parse_word(p, "`%`, `dim`, `map` or `output`", "_", word);
    if (s != CODA_OK) return s;
    if (strcmp(word, "dim") == 0) return read_dim_line(p);
    if (strcmp(word, "map") == 0) return read_map_line(p);
    if (strcmp(word, "output") == 0) return read_output_line(p);
    return fail(CODA_E_INVALID, "expected `%%`, `dim`, `map` or `output`, got `%.40s`%s", word,
                suggest_line(word).text);
}

static coda_status read_lines(struct parser *p)
{
    for (p->line = 1;; p->line++) {
        coda_status s = read_line(p);
        if (s != CODA_OK) return fail(s, "line %d: %s", p->line, fail_message());
        if (!*p->at) return CODA_OK;
        p->at++; /* the newline that end_line() left */
    }
}

graph *graph_parse(const char *text)
{
    struct parser p = {.at = text, .g = graph_new()};
    if (p.g) p.g->text_names = &p.values;
    coda_status s = p.g ? read_lines(&p) : fail(CODA_E_MEMORY, "graph parse: out of memory");
    if (p.g) p.g->text_names = NULL;
    arena_free(&p.arena);
    if (s == CODA_OK) return p.g;
    graph_free(p.g);
    return NULL;
}
