// A clean-up under way: its numbers are read again while the page is open. What has focus stays
// where it is.
const EVERY = 3000;
const shown = (page) => page.querySelector('[data-job]');

async function look() {
  const answer = await fetch(location.href).catch(() => null);
  if (answer?.ok) {
    const now = shown(new DOMParser().parseFromString(await answer.text(), 'text/html'));
    if (now?.dataset.job !== shown(document).dataset.job) return location.reload();
    shown(document).replaceChildren(...now.childNodes);
  }
  setTimeout(look, EVERY);
}

setTimeout(look, EVERY);
