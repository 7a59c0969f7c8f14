"""Does JSON on standard input hold by a JSON Schema (draft 2020-12)? schema.py SCHEMA. Knows the keywords that the
schemas of this tree have, and refuses a schema with any other. Then it spoils the value in each way that the schema
forbids, member by member, and wants each refused, so that a schema that says nothing is none."""
import copy
import json
import sys

ANNOTATIONS = {"$schema", "title", "description"}
TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
}


def mistakes(schema, v, at="$"):
    """What is wrong with v, a line each."""
    known = ANNOTATIONS | {"type", "const", "minimum", "exclusiveMinimum", "minLength", "required", "properties",
                           "additionalProperties", "items"}
    if set(schema) - known:
        yield "%s: the schema has %s, which this reader does not know" % (at, sorted(set(schema) - known))
    if "const" in schema and v != schema["const"]:
        yield "%s is %r, not %r" % (at, v, schema["const"])
    if "type" in schema and not TYPES[schema["type"]](v):
        yield "%s is %r, no %s" % (at, v, schema["type"])
        return
    if "minimum" in schema and v < schema["minimum"]:
        yield "%s is %r, below %r" % (at, v, schema["minimum"])
    if "exclusiveMinimum" in schema and v <= schema["exclusiveMinimum"]:
        yield "%s is %r, not above %r" % (at, v, schema["exclusiveMinimum"])
    if "minLength" in schema and len(v) < schema["minLength"]:
        yield "%s is too short" % at
    if isinstance(v, dict):
        for name in schema.get("required", []):
            if name not in v:
                yield "%s lacks %s" % (at, name)
        for name, member in v.items():
            part = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            if part is False:
                yield "%s has %s" % (at, name)
            else:
                yield from mistakes(part, member, at + "." + name)
    if isinstance(v, list):
        for i, item in enumerate(v):
            yield from mistakes(schema.get("items", {}), item, "%s[%d]" % (at, i))


def spoilt(v, path=()):
    """Copies of v with one thing wrong: a member gone, of another type, negative, or one too many."""
    def changed(edit):
        other = copy.deepcopy(v)
        edit(other)
        return other
    for name in v:
        yield "without %s" % name, changed(lambda o: o.pop(name))
        yield "%s null" % name, changed(lambda o: o.update({name: None}))
        if TYPES["number"](v[name]):
            yield "%s negative" % name, changed(lambda o: o.update({name: -1}))
    yield "with another member", changed(lambda o: o.update({"other": 1}))


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        schema = json.load(f)
    value = json.load(sys.stdin)
    wrong = list(mistakes(schema, value))
    tried = 0
    for what, other in spoilt(value):
        tried += 1
        if not list(mistakes(schema, other)):
            wrong.append("taken: %s" % what)
    for what, launch in spoilt(value["launches"][0]):
        tried += 1
        if not list(mistakes(schema, dict(value, launches=[launch]))):
            wrong.append("taken: a launch %s" % what)
    for line in wrong:
        print(line)
    print("schema: %d launches, %d spoilt values refused" % (len(value["launches"]), tried))
    sys.exit(bool(wrong))


main()
