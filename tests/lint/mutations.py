# SPDX-License-Identifier: Apache-2.0
"""Where a C file may be changed so that it goes on compiling and does something else: what mutate.py draws from.

A point is one small fault: a condition or one of its operators, a constant, a call left out, a returned value. Only code
in the bodies of functions has points: no comments, strings, preprocessor lines, declarators, static assertions, no calls
of the logger, and nothing that only frees memory, which is what the sanitizers look for."""
import re
from collections import namedtuple

# `old` is text[begin:end], `new` what the mutant has there.
Point = namedtuple("Point", "kind begin end old new")
Token = namedtuple("Token", "kind text begin")

TOKEN = re.compile(r"""
    (?P<space>\s+)
  | (?P<comment>/\*.*?\*/|//[^\n]*)
  | (?P<line>(?m:^)\#(?:\\\n|/\*.*?\*/|[^\n])*)
  | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<mark><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
""", re.S | re.X)

OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
PAIRS = {"(": ")", "[": "]", "{": "}"}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
# An expression with logical operators ends at these, when they are outside of brackets that it opens itself.
BOUNDS = ASSIGN | {",", ";", "?", ":", "{", "}", "return", "else", "do", "case", "goto"}
CONTROL = {"if", "while", "for", "switch"}
KEYWORDS = CONTROL | {"return", "else", "do", "case", "goto", "sizeof", "break", "continue", "default"}
# What stands in their brackets is no code of this function, or for people only.
CLOSED = re.compile(r"tpck_log(_\w+)?|_Static_assert|static_assert|__attribute__|_Alignas|sizeof|offsetof|va_\w+|typeof|__typeof__")
NOT_LEFT_OUT = re.compile(r"free|pthread_\w+_destroy")


def tokens(text):
    return [Token(m.lastgroup, m.group(), m.start()) for m in TOKEN.finditer(text)
            if m.lastgroup not in ("comment", "line", "space")]


class Body:
    """The tokens of a file, which bracket belongs to which, and what may not be touched."""

    def __init__(self, text):
        self.text = text
        self.tokens = tokens(text)
        self.partner = {}
        opened = []
        for i, token in enumerate(self.tokens):
            if token.kind == "mark" and token.text in PAIRS:
                opened.append(i)
            elif token.kind == "mark" and token.text in PAIRS.values() and opened:
                begin = opened.pop()
                self.partner[begin], self.partner[i] = i, begin
        self.closed = set()
        for i, token in enumerate(self.tokens):
            if token.kind == "word" and CLOSED.fullmatch(token.text) and self.at(i + 1) == "(":
                self.closed.update(range(i, self.partner.get(i + 1, i) + 1))

    def at(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) and self.tokens[i].kind != "text" else ""

    def begin(self, i):
        return self.tokens[i].begin

    def end(self, i):
        return self.tokens[i].begin + len(self.tokens[i].text)

    def slice(self, first, last):
        return self.text[self.begin(first):self.end(last)]

    def functions(self):
        """The first and last token of each body, and the words before the function's name."""
        i = after = 0
        while i < len(self.tokens):
            if self.at(i) == "{" and i in self.partner:
                if self.at(i - 1) == ")":
                    name = self.partner[i - 1] - 1
                    yield i, self.partner[i], [t.text for t in self.tokens[after:name]]
                i = self.partner[i]
                after = i + 1
            elif self.at(i) in ("(", "[") and i in self.partner:
                i = self.partner[i]
            elif self.at(i) == ";":
                after = i + 1
            i += 1

    def begins_statement(self, i):
        before = self.at(i - 1)
        if before in (";", "{", "}", "else", "do"):
            return True
        if before == ")":
            return self.at(self.partner.get(i - 1, 0) - 1) in CONTROL
        # Behind a label or a case, not behind the colon of a choice.
        j = i - 1
        while before == ":" and j > 0 and self.at(j - 1) not in (";", "{", "}", "?"):
            j -= 1
        return before == ":" and self.at(j - 1) != "?"

    def in_declarator(self, i):
        """Whether token i stands in the brackets of a name that is declared, not in a value."""
        while i > 0 and self.at(i) != "[":
            if self.at(i) in ("(", "{", ";", "}"):
                return False
            i = self.partner.get(i, i) - 1 if self.at(i) in (")", "]") else i - 1
        # Back to where the statement begins: a value stands behind an = without a comma between.
        comma = False
        while i > 0 and not self.begins_statement(i):
            i = self.partner.get(i, i) - 1 if self.at(i) in (")", "]", "}") else i - 1
            comma = comma or self.at(i) == ","
            if self.at(i) in ("(", "{", "[") or (self.at(i) in ASSIGN and not comma):
                return False
        first = self.tokens[i]
        return first.kind == "word" and first.text not in KEYWORDS and \
            (self.tokens[i + 1].kind == "word" or bool(re.fullmatch(r"\w+_t|char|void|int|bool", first.text)))

    def expression(self, i, low, high):
        """The whole expression around the operator at i, as far as it goes without assigning or choosing: its first and
        last token, or None."""
        first = last = i
        while first - 1 > low:
            text = self.at(first - 1)
            if text in BOUNDS or text in ("(", "["):
                break
            if text in (")", "]"):
                opening = self.partner[first - 1]
                if self.at(opening - 1) in CONTROL:
                    return None
                first = opening
                continue
            first -= 1
        while last + 1 < high:
            text = self.at(last + 1)
            if text in BOUNDS or text in (")", "]"):
                break
            last = self.partner[last + 1] if text in ("(", "[") else last + 1
        return (first, last) if first < i < last or (first < i and self.at(i) == "?") else None


def value(literal):
    match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|[0-9]+)[uUlL]*", literal)
    if not match:
        return None
    digits = match.group(1)
    return int(digits, 8) if re.fullmatch("0[0-7]+", digits) else int(digits, 0)


def another_return(kinds, old):
    """What a function of that type may return in place of `old`, or None."""
    kinds = [k for k in kinds if k not in ("static", "inline", "extern", "const") and not k.startswith(("TPCK_", "__"))]
    if "*" in kinds:
        return None if old == "NULL" else "NULL"
    if "void" in kinds or "struct" in kinds or "double" in kinds:
        return None
    if "bool" in kinds:
        return f"!({old})"
    if kinds[-1:] == ["int"] and "unsigned" not in kinds:
        return "0" if old.startswith("-") else "-5"  # -EIO, which not all files know by its name
    return f"({old}) + 1" if kinds else None


def points(text):
    """All points of a file, in the order of the file."""
    body = Body(text)
    found = []

    def add(kind, first, last, new):
        found.append(Point(kind, body.begin(first), body.end(last), body.slice(first, last), new))

    for low, high, kinds in body.functions():
        for i in range(low + 1, high):
            token = body.tokens[i]
            if i in body.closed or token.kind == "text":
                continue
            if token.text in OPERATORS:
                around = body.expression(i, low, high)
                if around:
                    first, last = around
                    begin = body.begin(first)
                    old = body.slice(first, last)
                    at = token.begin - begin
                    add("condition", first, last, old[:at] + OPERATORS[token.text] + old[at + len(token.text):])
            elif token.text == "if" and body.at(i + 1) == "(":
                first, last = i + 2, body.partner[i + 1] - 1
                add("condition", first, last, f"!({body.slice(first, last)})")
            elif token.text == "?":
                around = body.expression(i, low, high)
                if around:
                    add("condition", around[0], i - 1, f"!({body.slice(around[0], i - 1)})")
            elif token.kind == "number":
                number = value(token.text)
                if number is None or body.at(i - 1) == "case" or body.at(i + 1) == "..." or body.in_declarator(i):
                    continue
                add("constant", i, i, {0: "1", 1: "0"}.get(number, f"({token.text} + 1)"))
            elif token.text == "return" and body.at(i + 1) != ";":
                last = i + 1
                while body.at(last) != ";":
                    last = body.partner[last] + 1 if body.at(last) in PAIRS else last + 1
                new = another_return(kinds, body.slice(i + 1, last - 1))
                if new:
                    add("return", i + 1, last - 1, new)
            elif token.kind == "word" and token.text not in KEYWORDS and body.begins_statement(i):
                last = i
                while body.at(last + 1) in ("->", ".") and body.tokens[last + 2].kind == "word":
                    last += 2
                if body.at(last + 1) == "(" and body.at(body.partner[last + 1] + 1) == ";" and \
                   not NOT_LEFT_OUT.fullmatch(token.text):
                    add("call", i, body.partner[last + 1], "(void)0")
    return found


# ---- all mutants in one build -------------------------------------------------------------------

# A switch is asked once a process and point, by the kernel's own calls: neither libc's functions nor hooks see it, and
# what has been reached is known although the process is killed at once.
SWITCH = r"""static __attribute__((noinline, cold, unused)) int tpck_mutant_ask(signed char *state, long number)
{
	long fd, done;
	char on = 0;
	register long r10 __asm__("r10");
#define TPCK_MUTANT_CALL(call, a, b, c, d) (r10 = (d), ({ __asm__ volatile("syscall" : "=a"(done) : "0"((long)(call)), \
	"D"((long)(a)), "S"((long)(b)), "d"((long)(c)), "r"(r10) : "rcx", "r11", "memory"); done; }))
	fd = TPCK_MUTANT_CALL(2, "@SWITCHES@", 02000002, 0, 0);
	if (fd >= 0) {
		TPCK_MUTANT_CALL(17, fd, &on, 1, number);
		TPCK_MUTANT_CALL(18, fd, "r", 1, number + @COUNT@);
		TPCK_MUTANT_CALL(3, fd, 0, 0, 0);
	}
	*state = on == '1' ? 1 : -1;
	return on == '1';
}
#define TPCK_MUTANT(number) ({ static signed char state_; state_ ? state_ > 0 : tpck_mutant_ask(&state_, number); })
#line 1
"""


def mutated(text, point):
    """The file with one fault."""
    new = f"({point.new})" if point.kind == "constant" else point.new
    return text[:point.begin] + new + text[point.end:]


def switched(text, numbered, switches, count):
    """The file with the faults of `numbered`, pairs of number and point that do not overlap. Each is off, unless the byte
    of its number in the file `switches` is a '1' when a process comes there first; the byte behind the first `count`
    ones becomes an 'r'."""
    for number, point in sorted(numbered, key=lambda pair: -pair[1].begin):
        if point.kind == "call":
            new = f"(TPCK_MUTANT({number}) ? (void)0 : (void)({point.old}))"
        else:
            new = f"(TPCK_MUTANT({number}) ? ({point.new}) : ({point.old}))"
        text = text[:point.begin] + new + text[point.end:]
    return SWITCH.replace("@SWITCHES@", switches).replace("@COUNT@", str(count)) + text
