// Fetch the page again and replace the parts that have an id in `ids`, keeping focus, scroll and
// open details.

const scrollers = (part) => [...part.querySelectorAll('[data-keep-scroll]')];

const remember = (part) => ({
  focus: part.contains(document.activeElement) ? document.activeElement.id : '',
  open: [...part.querySelectorAll('details[id][open]')].map((d) => d.id),
  scroll: scrollers(part).map((s) => [s.dataset.keepScroll, s.scrollLeft, s.scrollTop]),
});

const restore = (part, was) => {
  for (const id of was.open) {
    const d = document.getElementById(id);
    if (d) d.open = true;
  }
  for (const [name, left, top] of was.scroll) {
    const s = part.querySelector(`[data-keep-scroll="${name}"]`);
    if (s) {
      s.scrollLeft = left;
      s.scrollTop = top;
    }
  }
  if (was.focus) document.getElementById(was.focus)?.focus({ preventScroll: true });
};

const PATIENCE = 30_000;

export const fetchText = async (url) => {
  const answer = await fetch(url, {
    headers: { 'X-Fragment': '1' },
    signal: AbortSignal.timeout(PATIENCE),
  });
  if (answer.status === 404 || answer.redirected) {
    location.reload();
    return null;
  }
  return answer.ok ? answer.text() : null;
};

export const fetchPage = async (url) => {
  const text = await fetchText(url);
  return text === null ? null : new DOMParser().parseFromString(text, 'text/html');
};

export const swapParts = (page, ids) => {
  for (const id of ids) {
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    if (!old || !fresh || old.isEqualNode(fresh)) continue;
    const was = remember(old);
    old.replaceWith(fresh);
    restore(fresh, was);
  }
};

// Only the newest answer counts: two steps in a row must not end on the first one.
let turn = 0;
export const refresh = async (url, ids) => {
  const mine = ++turn;
  const page = await fetchPage(url).catch(() => null);
  if (!page || mine !== turn) return null;
  swapParts(page, ids);
  return page;
};
