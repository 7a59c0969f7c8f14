#!/usr/bin/env python3
"""Renders chat templates with jinja2, set up as Hugging Face's transformers sets it up, and records what comes.

    make_templates.py        writes templates/golden.json: sources and variables by name, and cases of them with
                             their text, or that they fail

templates/*.jinja are in the style of families; the rest is below, a line for each thing that a template may say.
"""
import glob
import json
import os

import jinja2
import jinja2.nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")


class Generation(Extension):
    """{% generation %} ... {% endgeneration %}: the body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True)).set_lineno(line)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


ENV = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception

SYSTEM = {"role": "system", "content": " Be brief. "}
USER = {"role": "user", "content": "  Why is the sky blue?\n"}
REPLY = {"role": "assistant", "content": "<think>\nlight\n</think>\n\nRayleigh. "}
MORE = {"role": "user", "content": "Über 1 < 2 & \"so\" \u2028 \U0001f600"}
CALL = {"role": "assistant", "content": None,
        "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1, "b": [2.5, None, True, "ß\n"]}}}]}
RESULT = {"role": "tool", "content": "{\"sum\": 3}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]}
CHATS = [[USER], [SYSTEM, USER], [USER, REPLY, MORE], [SYSTEM, USER, REPLY, MORE], [USER, REPLY], [USER, USER],
         [USER, CALL, RESULT, RESULT, REPLY], [PARTS], []]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}

THINGS = {"s": " aXb,ä€😀, ß ", "n": 7, "x": 0.1, "big": 1e16, "small": 1.5e-7, "t": True, "no": None, "e": "",
          "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"b": 1, "a": {"c": [1, 2, {"k": "v"}]}, "items": 9},
          "m": [USER, REPLY, SYSTEM], "deep": [[1, [2, [3]]], {}], "q": "it's \"q\"\\\t\n\x01", "z": "a\u00a0b\u3000"}
SNIPPETS = r"""
{{ s | trim }}|{{ s.strip() }}|{{ s | upper }}|{{ s.lower() }}|{{ s | length }}|{{ s[1] }}|{{ s[-3] }}|{{ s[2:5] }}|{{ s[::-1] }}|{{ s[5:] }}|{{ s[:-2] }}|{{ s[10:99] }}
{{ s.split(',') }}|{{ 'a  b c '.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a b  c '.split(None, 1) }}|{{ 'a-b-c'.rsplit('-', 1) }}|{{ 'a\nb\r\nc\n'.splitlines() }}
{{ 'xxaxx'.strip('x') }}{{ 'xxaxx'.lstrip('x') }}{{ 'xxaxx'.rstrip('x') }}{{ 'aöa'.strip('aö') }}|{{ z.strip() }}|{{ '\u3000a\x1f'.strip() }}|
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}{{ 'abc'.find('c') }}{{ 'äbc'.find('c') }}{{ 'abc'.find('z') }}{{ 'abab'.rfind('ab') }}{{ 'abab'.count('ab') }}{{ 'aXb'.replace('X', '--') }}{{ 'aaa'.replace('a', 'b', 2) }}
{{ 'hello world-foo'.title() }}|{{ "they're bill's" | title }}|{{ 'hELLO' | capitalize }}|{{ 'élan'.upper() }}|{{ 'ß'.upper() }}|{{ ', '.join(['a', 'b']) }}|{{ 'prefix'.removeprefix('pre') }}{{ 'suffix'.removesuffix('fix') }}{{ '12'.isdigit() }}{{ ''.isdigit() }}
{{ n + 1 }} {{ n - 10 }} {{ n * 2 }} {{ n / 2 }} {{ n // 2 }} {{ -n // 2 }} {{ n % 3 }} {{ -n % 3 }} {{ 2 ** 10 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 10 / 5 }}
{{ x }} {{ x + 0.2 }} {{ big }} {{ small }} {{ 1e5 }} {{ 123456789.125 }} {{ 1.0 }} {{ 1e22 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1_000 }} {{ 5 | float }} {{ 1.9 | int }} {{ '12' | int }} {{ 'z' | int }} {{ ' 3.7 ' | float }} {{ '3.7' | int }}
{{ 'a' ~ 1 ~ none ~ true ~ [1, 'b'] ~ undef ~ 1.5 }} {{ 'a' 'b' }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ [0] * 2 }} {{ (1, 2) + (3,) }} {{ 1, 2 }} {{ () }} {{ (1,) }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' == 1 }} {{ none == none }} {{ [1, [2]] == [1, [2]] }} {{ {'a': 1} == {'a': 1.0} }} {{ 3 != 4 }} {{ 3 >= 3 }} {{ undef == none }}
{{ 1 in l }} {{ 9 not in l }} {{ 'X' in s }} {{ 'b' in d }} {{ not 'zz' in d }} {{ 'a' in undef }} {{ '' in 'a' }}
{{ t and 5 }} {{ 0 or 'x' }} {{ e or no or 'last' }} {{ not t }} {{ not undef }} {{ t if n > 3 else 'less' }} {{ 'x' if false }} {{ 1 if e else 2 if no else 3 }}
{{ l }} {{ d }} {{ deep }} {{ q }} {{ [q] }} {{ ["it's", 'say "x"'] }} {{ [none, true, 1.0, undef is defined] }} {{ {1: 'a', 'b': (1, 2)} }}
{{ d.a.c[2].k }} {{ d['a']['c'][0] }} {{ d.a['c'].1 }} {{ d.nothing }} {{ d.get('b') }} {{ d.get('z', 5) }} {{ d.get('z') }} {{ l[0] }} {{ l[-1] }} {{ l[9] }} {{ d['items'] }} {{ l.index(2) }} {{ l.count(3) }}
{% for k, v in d.items() %}{{ loop.index }}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k in d.keys() %}{{ k }}{% endfor %}{% for k, v in {'x': 1} | items %}{{ k }}{{ v }}{% endfor %}{% for c in 'äb' %}[{{ c }}]{% endfor %}
{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}{% for i in [] %}x{% else %}none{% endfor %}
{% for i in range(6) if i % 2 %}{{ i }}:{{ loop.index }} {% endfor %}{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}{% for a in [1, 2] %}{% for b in [3, 4] %}{{ a }}{{ b }}{{ loop.depth }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}
{% set a = 1 %}{% for i in [1, 2] %}{{ a }}{% set a = 5 %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 9 %}{% endif %}{{ a }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c %}in {{ a }}{% endset %}{{ c }}{% set c | upper %}up{% endset %}{{ c }}
{% set ns = namespace(x=1, y='a') %}{% for i in [1, 2, 3] %}{% set ns.x = ns.x + i %}{% set ns.z = i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}{{ ns.q }}{% set o = namespace({'k': 2}) %}{{ o.k }}{{ dict(a=1) }}{{ dict({'b': 2}, c=3) }}
{% macro f(a, b=2, c='x') %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ f(1) }}{{ f(1, c='z') }}{{ f() }}{{ f(*[1, 2]) }}{{ f(**{'a': 8}) }}{% set g = 5 %}{% macro h() %}{{ g }}{% endmacro %}{% set g = 6 %}{{ h() }}{{ f(1) | upper }}{{ f(1) | length }}
{% macro w(a) %}<{{ a }}:{{ caller() }}>{% endmacro %}{% call w(1) %}body{% endcall %}{% macro r(n) %}{{ n }}{% if n %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}
{% macro w(a) %}<{{ caller(1, 2) }}{{ caller(3) }}{{ caller(x=5) }}>{% endmacro %}{% call(x, y=7) w(1) %}[{{ x }},{{ y }}]{% endcall %}{% macro e() %}{{ caller is defined }}{{ caller() if caller else 'alone' }}{% endmacro %}{{ e() }}{% call e() %}c{% endcall %}{% call() e() %}d{% endcall %}
{% macro w() %}{{ caller() }}{% endmacro %}{% call(x) w() %}[{{ x }}|{{ a }}]{% endcall %}{% macro v() %}{% set y = 5 %}{{ caller(y) }}{% endmacro %}{% set y = 1 %}{% call(x, z=y) v() %}{{ x }}{{ y }}{{ z }}{% set y = 9 %}{{ y }}{% endcall %}{{ y }}{% macro u() %}{{ caller(*[1, 2]) }}{{ caller(**{'x': 3, 'y': 4}) }}{% endmacro %}{% call(x, y) u() %}{{ x }}{{ y }}{% endcall %}
{% macro w() %}{% for i in [1, 2] %}{{ caller(i) }}{% endfor %}{% endmacro %}{% for k in 'ab' %}{% call(x) w() %}{{ x }}{{ k }}{{ loop.index }}{% endcall %}{% endfor %}{% macro a() %}{{ caller(1) }}{% endmacro %}{% macro b() %}{{ caller(2) }}{% endmacro %}{% call(x) a() %}{% call(y) b() %}{{ x }}{{ y }}{% endcall %}{% endcall %}{% call(r) a() %}{{ r | string ~ n }}{% endcall %}
{{ 1 ** 99999999999 }}|{{ '' * 99999999999999 }}|{{ [] * 99999999999999 }}|{{ (-1) ** 1001 }}|{{ 2 ** 62 }}|{{ (-2) ** 63 }}|{{ 3 ** 39 }}|{{ 0 ** 0 }}|{{ [1, {'a': []}] | tojson(indent=-3) }}|{{ [1] | tojson(indent=0) }}|{{ [1] | tojson(indent=-4294967295) }}
{{ 'aXbXXc'.rfind('X') }}|{{ 'aaaa'.rfind('aa') }}|{{ 'äbä'.rfind('ä') }}|{{ 'abc'.rfind('') }}|{{ 'abc'.rfind('abcd') }}|{{ 'aaaaa'.rsplit('aa') }}|{{ 'a,b,,c'.rsplit(',', 2) }}|{{ 'äXäXä'.rsplit('X') }}|{{ ''.rsplit('x') }}|{{ 'xyxabcxyx'.strip('xy') }}|{{ 'äöaäö'.strip('öä') }}|{{ 'abc'.strip('') }}|{{ 'aXa'.lstrip('a') }}|{{ 'aXa'.rstrip('a') }}|{{ ' x '.strip(none) }}
{% filter upper %}abc{{ n }}{% endfilter %}{% filter replace('a', 'b') | trim %} aXa {% endfilter %}{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}{% raw %}{{ x }} {% y %}{% endraw %}|{%- raw -%} q {%- endraw -%}|
{{ undef }}|{{ undef is defined }}{{ n is defined }}{{ undef is undefined }}{{ no is none }}{{ s is string }}{{ d is mapping }}{{ l is sequence }}{{ s is iterable }}{{ n is number }}{{ x is float }}{{ n is integer }}{{ t is boolean }}{{ t is true }}{{ n is odd }}{{ 8 is even }}{{ 9 is divisibleby 3 }}{{ n is not none }}{{ n is eq 7 }}{{ n is in [7] }}{{ 3 is lt 4 }}{{ 'ab' is lower }}{{ range is callable }}
{{ l | join(', ') }} {{ m | map(attribute='role') | join('-') }} {{ ['a', 'b'] | map('upper') | list }} {{ l | first }} {{ l | last }} {{ l | sort }} {{ l | sort(reverse=true) }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ l | sum }} {{ l | min }} {{ l | max }} {{ [1, 1, 2] | unique | list }} {{ m | sort(attribute='role') | map(attribute='role') | list }} {{ m | map(attribute='nope', default='-') | list }}
{{ m | selectattr('role', 'equalto', 'user') | list | length }}{{ m | rejectattr('role', 'eq', 'user') | map(attribute='role') | join(',') }}{{ l | select('odd') | list }}{{ l | reject('gt', 1) | list }}{{ [0, 1] | select | list }}{{ m | selectattr('content') | list | count }}{{ 'x' if m | selectattr('role', 'equalto', 'zz') else 'y' }}{{ d | dictsort | length }}{{ {'b': 1, 'A': 2} | dictsort }}{{ {'b': 1, 'A': 2} | list }}
{{ d | tojson }} {{ q | tojson }} {{ [1, 2.5, none, true, 'ä€😀'] | tojson }} {{ {} | tojson }}{{ [] | tojson(indent=2) }} {{ d | tojson(indent=2) }} {{ {1: 2} | tojson }} {{ '</script>' | tojson }}
{{ undef | default('d') }}{{ e | default('d') }}{{ e | default('d', true) }}{{ no | default('d') }}{{ no | d('x', boolean=true) }}{{ undef | default }}{{ d.zz | default(5) + 1 }}{{ -3 | abs }}{{ 2.567 | round(2) }}{{ 2.5 | round }}{{ 2.1 | round(0, 'ceil') }}{{ 42 | round }}{{ '<a href="x">&\'' | e }}{{ 5 | string + '!' }}{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}
{{ "\n\t\\\"\'\x41\u20ac\101" }}{{ 'a\
b' }}{{ '\d' }}{{ "{{ '}}' }}" }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {'b': {}}} }}{{ [[1], [2]][1][0] }}{{- '  x  ' -}}  {{ ('a' if t else 'b') ~ 'c' }}{{ (n + 1) * 2 }}{{ n.nope }}{{ 'a'.nope is defined }}
{% if n == 7 %}yes{% elif n == 8 %}8{% else %}no{% endif %}{% if undef %}u{% elif l %}l{% endif %}{% if not (no is none) %}x{% else %}y{% endif %}{% if 'a' in 'abc' and n > 3 or false %}z{% endif %}{% if d.a is defined and d.a.c is not none %}w{% endif %}
{% for i in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }}{% endfor %}{% for x, y in [(1, 2), [3, 4]] %}{{ x }}{{ y }}{% endfor %}{% for x in undef %}a{% else %}b{% endfor %}{{ [1, 2, 3, 4][1:3] }}{{ [1, 2, 3, 4][::-1] }}{{ [1, 2, 3, 4][::2] }}{{ [1, 2, 3][-2:] }}{{ [1, 2][5:] }}{{ (1, 2, 3)[1:] }}
{{ '%s|%5s|%-5s|%.2s|%r|%%' % (n, 'ab', 'äb', 'äbc', "it's") }} {{ '%d %05d %+d % d %x %X %o %3d|%-4d|' % (n, -42, 5, 5, 255, -255, 8, 7, 7) }} {{ '%.2f %8.3f %e %g %G %08.2f' % (x, big, small, x, 1e-10, -3.14159) }} {{ '%s' % [1, 'a'] }} {{ '%s' % none }} {{ '%(a)s-%(b)d' % {'a': 1, 'b': 2} }} {{ '%d' % 3.9 }} {{ '%5.1f%%' % 99.55 }}
{{ '%s and %s' | format('a', [1]) }} {{ '%(k)s' | format(k=5) }} {{ '{}-{}'.format(1, 'b') }} {{ '{1}{0}{1}'.format('x', 'y') }} {{ '<{a}{{}}{b}>'.format(a=n, b=none) }} {{ '{:>5}|{:<5}|{:^5}|{:5}|{:5}'.format('ab', 'ab', 'ab', 'ab', 3) }} {{ '{:03d} {:+} {:.2f} {:8.3f} {:x} {:.2} {:e}'.format(7, 5, x, big, 255, 'äbc', small) }} {{ '{!r} {!s}'.format('q', 'q') }} {{ 'none'.format() }}
{{ d | tojson(ensure_ascii=true) }} {{ ['ä€😀\x7f', 1] | tojson(ensure_ascii=True, indent=1) }} {{ d | tojson(sort_keys=true) }} {{ {'b': {'z': 1, 'y': [1, 2]}, 'a': 2} | tojson(sort_keys=True, separators=(',', ':')) }} {{ [1, {'k': 2}] | tojson(separators=(' ; ', '=')) }} {{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=true) }}
{{ no | selectattr('role', 'equalto', 'x') | list }}{{ no | map('upper') | list }}{{ e | select('odd') | list | length }}{{ 0 | rejectattr('a') | list }}{% if no %}{{ n | nofilter }}{{ n is notest }}{% endif %}{{ 'ok' if n else (n | nofilter) }}
{{ m[0]['content'].strip().split(' ')[0] | upper }}{{ m | length - 1 }}{{ (m | first).role }}{{ m[1].content.split('</think>')[-1].lstrip('\n') }}{{ m[0].content | trim | length + 1 }}{{ -1 + 2 }}{{ not n == 7 }}{{ - n }}{{ 1 - -1 }}{{ '%d' if false else 'ok' }}{{ 3 | string | length }}
{{ 1.115 | round(2) }}|{{ 2.675 | round(2) }}|{{ 1.005 | round(2) }}|{{ 0.285 | round(2) }}|{{ 2.5 | round }}|{{ 3.5 | round }}|{{ -0.5 | round }}|{{ 1e22 | round(3) }}|{{ 1.5 | round(300) }}|{{ 15.0 | round(-1) }}|{{ 25 | round(-1) }}|{{ 5 | round(-1) }}|{{ 5 | round(2) }}|{{ 1.15 | round(1, 'ceil') }}|{{ 1.19 | round(1, 'floor') }}
{{ 'a-b-c'.split('-', -2) }}|{{ 'a-b-c'.rsplit('-', -9223372036854775807 - 1) }}|{{ 'a b c'.split(None, -9223372036854775807 - 1) }}|{{ 'aaa'.replace('a', 'b', -2) }}
""".strip("\n").replace("'a\\\nb'", "'a\\\x00b'").split("\n")
SNIPPETS = [line.replace("\x00", "\n") for line in SNIPPETS]

SPACES = ["a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "  {%- if true -%}  \n b \n {%- endif -%} \n c\n\n", "x {%+ if true %} y\n{%+ endif +%}\nz",
          "  {{ 1 }}  \n  {{- 2 -}}  \n3", "{# c #}\n a {# d #} \n  {#- e -#}  b\n\t{# f #}\ng", "\r\na\r\n{% if 1 %}\r\nb\rc{% endif %}\r\n",
          "{% for i in [1,2] %}\n{{ i }}\n{% endfor %}\nend", "{% for i in [1,2] -%}\n  {{ i }}\n{%- endfor %}\n\n\nend\n", "a{%if 1%}b{%endif%}c", "{{1}}\n{{2}}\n",
          "  {% set x = 1 %}  {% set y = 2 %}\n{{ x }}{{ y }}", "\n\n{% set x = 1 %}\n\nz\n\n", "{% raw %}\n  {% a %}\n{% endraw %}\nb", " {% raw %} x {%+ endraw +%}\n y", "", "\n", "plain { text } % } #}",
          "{{ '{%' }}{{ \"#}\" }}", "\u00a0{%- if 1 %} a{% endif -%} \u3000b", "a\x0b{%- if 1 %}b{% endif %}"]

FAILING = ["{{ '%s %s' % 1 }}", "{{ '%s' % (1, 2) }}", "{{ '%d' % 'a' }}", "{{ '%q' % 1 }}", "{{ '{}{}'.format(1) }}", "{{ '{' .format(1) }}", "{{ '}'.format(1) }}",
           "{{ '{a}'.format(1) }}", "{{ '{:d}'.format('a') }}", "{{ '{3}'.format(1) }}", "{{ '%(a)s' % {'b': 1} }}", "{{ '%' % 1 }}", "{{ '{:.3d}'.format(1) }}",
           "{{ [1] | tojson(separators=(',')) }}", "{{ {1: 2, 'a': 3} | tojson(sort_keys=true) }}", "{{ raise_exception('no such role') }}", "{{ undef.x }}", "{{ undef + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 < 'a' }}", "{{ nope() }}", "{{ s.nope() }}",
           "{{ x | nope }}", "{{ x is nope }}", "{% if %}{% endif %}", "{% for %}{% endfor %}", "{% if x %}", "{{ x", "{% endfor %}", "{{ 1 / 0 }}", "{{ 'a }}",
           "{{ (1 }}", "{{ [1, }}{{ ) }}", "{{ l | length(3) }}", "{{ 1 | length }}", "{{ m | map(attribute='role') | length }}", "{{ undef.a.b }}", "{% set n.x = 1 %}",
           "{% set a, b = [1] %}", "{{ [1][::0] }}", "{% break %}", "{# never", "{{ range(1, 2, 0) }}", "{{ 1 in 2 }}", "{% foo %}", "{{ not }}",
           "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{{ l.append(4) }}", "{{ d.update({}) }}", "{{ undef | tojson }}", "{{ ''.join([1]) }}", "{{ x.y.z }}", "{{ no.x.y }}", "{{ 5[0].a }}",
           "{{ [3, 'a'] | sort }}",
           "{% macro w(a) %}<{{ a }}>{% endmacro %}{% call w(1) %}body{% endcall %}", "{% macro w() %}{{ caller(1, 2) }}{% endmacro %}{% call(x) w() %}{{ x }}{% endcall %}",
           "{% macro w() %}{{ caller(1) }}{% endmacro %}{% call() w() %}a{% endcall %}", "{% call range(3) %}x{% endcall %}", "{% call(x=1, y) w() %}{% endcall %}",
           "{% macro w(a=1, b) %}{% endmacro %}", "{% call(x, x) w() %}{% endcall %}", "{% call(x) w %}{% endcall %}", "{% call(x w() %}{% endcall %}",
           "{% for i in [1, 2] %}{% macro w() %}{{ caller() }}{% endmacro %}{% call w() %}{% break %}{% endcall %}{% endfor %}", "{{ 1 is 2 }}", "{{ 'a' if }}", "{{ a b }}", "{% set %}", "{{ f(a=1, 2) }}", "{{ {1} }}"]


GOLDEN = {"sources": {}, "variables": {"things": THINGS, "nothing": {}}, "cases": []}


def render(source, variables):
    case = {"source": source, "variables": variables}
    try:
        case["text"] = ENV.from_string(GOLDEN["sources"][source]).render(**GOLDEN["variables"][variables])
    except Exception:  # whatever it is, a template that fails is one
        case["fails"] = True
    GOLDEN["cases"].append(case)
    return case


def main():
    for i, chat in enumerate(CHATS):
        GOLDEN["variables"][f"chat {i}"] = dict(SPECIAL, messages=chat, add_generation_prompt=True)
        GOLDEN["variables"][f"chat {i}, done"] = dict(SPECIAL, messages=chat, add_generation_prompt=False, enable_thinking=False)
    chats = [name for name in GOLDEN["variables"] if name.startswith("chat")]
    for path in sorted(glob.glob(os.path.join(HERE, "*.jinja"))):
        name = os.path.basename(path)
        with open(path, newline="") as f:
            GOLDEN["sources"][name] = f.read()
        for chat in chats:
            render(name, chat)
    for kind, sources, variables, what in (("expression", SNIPPETS, "things", "text"), ("space", SPACES, "nothing", "text"),
                                           ("failing", FAILING, "things", "fails")):
        for i, source in enumerate(sources):
            GOLDEN["sources"][f"{kind} {i}"] = source
            assert what in render(f"{kind} {i}", variables), source
    with open(os.path.join(HERE, "golden.json"), "w") as f:
        json.dump(GOLDEN, f, ensure_ascii=True, indent=0)
        f.write("\n")
    print(len(GOLDEN["cases"]), "cases,", sum("fails" in c for c in GOLDEN["cases"]), "of them fail")


if __name__ == "__main__":
    main()
