"""page.py SERVER MODEL -- the server's page in a browser, with a model from a file: what is typed is answered piece by piece,
Stop stops, errors are shown, and neither the network nor the console hears of anything else. `SHOTS=folder` leaves pictures.
It is at most 20 kB."""
import os
import subprocess
import sys
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../../test/system"))
import browser  # noqa: E402

MOST = 20000
# Keeps the texts that the answer has had, and presses Stop at the one of the number stopAt.
WATCH = """(() => {
  window.seen = [], window.stopAt = 0;
  new MutationObserver(() => {
    const all = document.querySelectorAll('#log .assistant'), text = all.length ? all[all.length - 1].textContent : '';
    if (text && window.seen[window.seen.length - 1] !== text) window.seen.push(text);
    if (window.stopAt && window.seen.length === window.stopAt) document.getElementById('stop').click();
  }).observe(document.getElementById('log'), {childList: true, subtree: true, characterData: true});
})()"""
IDLE = "!document.getElementById('send').hidden && document.querySelectorAll('#log .assistant').length"
KINDS = "[...document.querySelectorAll('#log div')].map(d => d.className)"
LAST = "[...document.querySelectorAll('#log .assistant')].pop().textContent"


def expect(good, what):
    if not good:
        raise AssertionError(what)


class Server:
    def __init__(self, program, *model):
        self.process = subprocess.Popen([program, "--port", "0", *model], stdout=subprocess.PIPE, text=True)
        self.url = None
        for line in self.process.stdout:
            if line.startswith("chat_server: http"):
                self.url = line.split(" ", 1)[1].strip()
            if "ready" in line:
                break
        expect(self.url, "the server ended with %s" % self.process.poll())

    def counter(self, name):
        with urllib.request.urlopen(self.url + "/metrics") as f:
            lines = f.read().decode().splitlines()
        return sum(float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith(name))

    def end(self):
        self.process.terminate()
        return self.process.wait()


def set_to(b, name, value):
    b.value("document.getElementById('%s').value = '%s'" % (name, value))


def asked(b, text, by_mouse=False):
    b.value("document.getElementById('text').focus()")
    b.value("window.seen = []")
    b.typed(text if by_mouse else text + "\n")
    if by_mouse:
        b.clicked("#send")


def streams(b, shot):
    """A text of stories260K, without draws: piece by piece, and the same as the server's at once."""
    set_to(b, "temperature", 0), set_to(b, "most", 60)
    asked(b, "Once upon a time")
    b.until(IDLE)
    text, seen = b.value(LAST), b.value("window.seen")
    expect(len(seen) >= 3 and all(y.startswith(x) for x, y in zip(seen, seen[1:])) and seen[-1] == text,
           "an answer in %d pieces: %s" % (len(seen), seen[-3:]))
    expect("there was" in text and len(text) > 80, "not a story: %s" % text)
    expect(b.value(KINDS) == ["user", "assistant"], b.value(KINDS))
    speed = b.value("document.getElementById('speed').textContent")
    expect(speed.startswith("60 tokens, "), "its speed: %s" % speed)
    shot("story")
    return text


def stops(b, server, shot):
    """Stop ends it on the server, too; what was there stays; the next one is answered."""
    set_to(b, "most", 400)
    b.value("window.stopAt = 3")
    asked(b, "Lily and Tom went", by_mouse=True)
    b.until("document.querySelectorAll('#log .assistant').length == 2 && !document.getElementById('send').hidden")
    text = b.value(LAST)
    b.value("window.stopAt = 0")
    # What came while Stop was on its way is there, too.
    expect(0 < len(text) < 1000 and text.startswith(b.value("window.seen[2]")), "after Stop: %s" % text)
    shot("stopped")
    for _ in range(600):
        if server.counter("coda_num_requests_running") == 0:
            break
        b.value("new Promise(r => setTimeout(r, 50))")
    expect(server.counter("coda_num_requests_running") == 0, "the server goes on with what was stopped")
    set_to(b, "most", 8)
    asked(b, "The end")
    b.until("document.querySelectorAll('#log .assistant').length == 3 && !document.getElementById('send').hidden")
    b.clicked("#clear")
    expect(b.value(KINDS) == [], "New chat leaves %s" % b.value(KINDS))


def is_text(b):
    """What is typed is text, never HTML."""
    set_to(b, "most", 4)
    asked(b, "<img src=x onerror=alert(1)><b>bold</b>")
    b.until(IDLE)
    expect(b.value("document.querySelectorAll('#log img, #log b').length") == 0, "a text became HTML")
    expect(b.value("document.querySelector('#log .user').textContent").startswith("<img"), "the text is not as it was typed")


def chats(b):
    """A model with a chat template is asked as a chat, with all that was said; one that is not there says so."""
    set_to(b, "temperature", 0), set_to(b, "most", 6), set_to(b, "system", "Be brief.")
    b.value("window.bodies = [], window.fetched = window.fetch, "
            "window.fetch = (path, o) => (o && o.body && bodies.push([path, JSON.parse(o.body)]), fetched(path, o))")
    for k, text in enumerate(("one", "two")):
        asked(b, text)
        b.until("document.querySelectorAll('#log .user').length == %d && !document.getElementById('send').hidden" % (k + 1))
    bodies = b.value("window.bodies")
    expect([x[0] for x in bodies] == ["v1/chat/completions"] * 2, "asked: %s" % bodies)
    said = [(m["role"], m["content"]) for m in bodies[1][1]["messages"]]
    expect(said[0] == ("system", "Be brief.") and said[1] == ("user", "one") and said[-1] == ("user", "two"), said)


def meet(path, program, model, visit):
    """The page of a server, which is left by `visit`."""
    server = Server(program, *model)
    try:
        with urllib.request.urlopen(server.url + "/") as f:
            size = len(f.read())
        expect(size <= MOST, "the page has %d bytes" % size)
        with browser.Browser(path, 900, 700) as b:
            b.open(server.url + "/")
            b.value(WATCH)
            name = os.path.basename(model[0]) if model else "tiny"
            b.until("document.getElementById('model').textContent == '%s'" % name)
            made = visit(b, server)
            strangers = [r for r in b.requests if not r.startswith((server.url + "/", "data:,"))]
            expect(not strangers, "it asks others: %s" % strangers)
            expect(not b.messages, "on the console: %s" % b.messages)
    finally:
        status = server.end()
    expect(status == 0, "the server ended with %d" % status)
    return size, made


def main(program, model):
    path, shots = browser.found(), os.environ.get("SHOTS")

    def story(b, server):
        def shot(name):
            if shots:
                b.shot(os.path.join(shots, "chat-%s.png" % name))
        text = streams(b, shot)
        stops(b, server, shot)
        is_text(b)
        return text
    size, text = meet(path, program, [model], story)
    meet(path, program, [], lambda b, server: chats(b))
    print("page.py: %d bytes, which stream (%d characters) and stop" % (size, len(text)))


if __name__ == "__main__":
    main(*sys.argv[1:])
