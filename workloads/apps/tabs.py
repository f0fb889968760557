"""The tabs of a browser, and the steps of a person from page to page."""

from .website import LINKS


class Tab:
    """A tab of either browser. A page is (host, path)."""

    def __init__(self):
        self.visited = []  # the page shown last at the end

    def _arrived(self, page):
        # The same page again makes no new entry in the browser's history.
        if page not in self.visited[-1:]:
            self.visited.append(page)

    @staticmethod
    def url(page, port):
        host, path = page
        return f"http://{host}.localhost:{port}{path}"


class Tabs:
    """The tabs that a person has open in a browser, at most so many."""

    def __init__(self, program, web, port, most):
        self._program, self._web, self._port, self._most = program, web, port, most
        self._all = [program.first_tab()]
        self.tab = self._all[0]

    def draw(self, rng):
        """A link and a tab for a step, drawn whether it needs them or not."""
        return rng.randrange(LINKS), rng.random()

    def possible(self, step):
        """The step, or a click on a link where it needs more tabs or fewer."""
        alone, full = len(self._all) == 1, len(self._all) >= self._most
        if alone and step in ("switch_tab", "close_tab") or full and step == "new_tab":
            return "link"
        return step

    def can_go_back(self):
        return len(self.tab.visited) >= 2

    def take(self, step, drawn, page):
        """Take a step; if it is none of tabs and links, open the page. Returns the page shown."""
        link, tab = drawn
        if step in ("switch_tab", "close_tab"):
            if step == "close_tab":
                self.tab.close()
                self._all.remove(self.tab)
            self.tab = self._all[int(tab * len(self._all))]
            self.tab.show()
        elif step == "new_tab":
            # As with a middle click on a link.
            there = self._linked(link)
            self.tab = self._program.new_tab()
            self._all.append(self.tab)
            self.tab.open(there, self._port)
        elif step == "back":
            self.tab.back()
        elif step == "link":
            self.tab.click(self._linked(link), link)
        else:
            self.tab.open(page, self._port)
        return self.tab.visited[-1]

    def _linked(self, link):
        return self._web.links[self.tab.visited[-1]][link]
