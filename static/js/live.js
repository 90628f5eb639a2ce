// A websocket that comes back with the last number it has, and what the bar says about it.

import { announceNews } from './tools.js';

const PAUSES = [1, 2, 4, 8, 15, 30];
const QUIET = 2000; // nothing is shown for shorter drops
const LONG = 30000; // after this the page polls
const GONE = 4404;
const SIGNED_OUT = 4401;

// Milliseconds before the next try; not the same for everybody who lost the server at the same
// moment.
const pauseAfter = (tries) =>
  PAUSES[Math.min(tries, PAUSES.length - 1)] * 1000 * (0.8 + 0.4 * Math.random());

// A page may have several links; the bar says how the worst of them stands.
const WORST_FIRST = [
  'Signed out',
  'No live updates',
  'Reconnecting',
  'Opening',
  'Up to date again',
  'Live',
];
const links = [];

const show = () => {
  const element = document.querySelector('[data-live]');
  const text = WORST_FIRST.find((one) => links.some((link) => link.state === one));
  if (!element || text === 'Opening') return '';
  const changed = element.hidden || element.querySelector('span').textContent !== text;
  element.hidden = false;
  element.classList.toggle('down', WORST_FIRST.indexOf(text) < 3);
  element.querySelector('span').textContent = text;
  showBanner(text === 'No live updates');
  return changed ? text : '';
};

// The banner says since when: the moment at which the first of the links was lost.
const showBanner = (down) => {
  const banner = document.getElementById('no-live');
  if (!banner) return;
  const lost = links.map((link) => link.lostAt).filter(Boolean);
  const since = new Date(Math.min(...lost));
  if (down && lost.length) {
    const time = banner.querySelector('time');
    time.dateTime = since.toISOString();
    time.textContent = since.toTimeString().slice(0, 5);
  }
  banner.hidden = !down || !lost.length;
};

const SAID = {
  'Signed out': 'You are signed out.',
  Reconnecting: 'Reconnecting. You can keep working.',
  'Up to date again': 'Up to date again.',
};

class Link {
  constructor({ url, onMessage, onOpen, onPoll }) {
    Object.assign(this, {
      url,
      onMessage,
      onOpen,
      onPoll,
      tries: 0,
      lostAt: 0,
      timers: [],
      state: 'Opening',
    });
    links.push(this);
    addEventListener('online', () => this.hurry());
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) this.hurry();
    });
    this.open();
  }

  open() {
    clearTimeout(this.retry);
    this.socket = new WebSocket(new URL(this.url(), location.href.replace(/^http/, 'ws')));
    this.socket.onopen = () => this.opened();
    this.socket.onmessage = (event) => this.onMessage(JSON.parse(event.data));
    this.socket.onclose = (event) => this.closed(event.code);
  }

  is(state) {
    this.state = state;
    const text = show();
    if (SAID[text]) announceNews(SAID[text]);
  }

  opened() {
    this.timers.forEach(clearTimeout);
    clearInterval(this.poll);
    const long = this.lostAt && Date.now() - this.lostAt > QUIET;
    this.lostAt = 0;
    this.tries = 0;
    this.is(long ? 'Up to date again' : 'Live');
    if (long)
      setTimeout(() => {
        if (!this.lostAt) this.is('Live');
      }, 5000);
    this.onOpen?.(this.socket);
  }

  closed(code) {
    if (code === GONE) {
      this.is('No live updates');
      return;
    }
    if (code === SIGNED_OUT) {
      this.is('Signed out');
      return;
    }
    if (!this.lostAt) {
      this.lostAt = Date.now();
      this.timers = [
        setTimeout(() => this.is('Reconnecting'), QUIET),
        setTimeout(() => this.startPolling(), LONG),
      ];
    }
    this.retry = setTimeout(() => this.open(), pauseAfter(this.tries));
    this.tries += 1;
  }

  startPolling() {
    this.is('No live updates');
    let ticks = 0;
    this.poll = setInterval(() => {
      ticks += 1;
      if (!document.hidden || ticks % 6 === 0) this.onPoll?.();
    }, 10000);
  }

  hurry() {
    if (this.socket.readyState === WebSocket.CLOSED) {
      this.tries = 0;
      this.open();
    }
  }
}

// Returns a function that calls `look` until it has shown what is new: a look that resolves to
// false, or breaks, is repeated after a pause, because what could not be shown may have been the
// last line of its log. Looks never overlap, so an older answer cannot replace a newer one.
export const untilShown = (look) => {
  let busy = false;
  let again = false;
  let tries = 0;
  let timer = 0;
  const run = async () => {
    clearTimeout(timer);
    again = busy;
    if (busy) return;
    busy = true;
    const shown = await Promise.resolve(look()).catch(() => false);
    busy = false;
    if (again) {
      run();
      return;
    }
    if (shown !== false) {
      tries = 0;
      return;
    }
    timer = setTimeout(run, pauseAfter(tries));
    tries += 1;
  };
  return run;
};

// Follow the log of one run. `onNews(events)` gets all lines of 250 ms at once; in a hidden tab it
// waits for the return. Where it resolves to false the same lines are given to it again, with those
// that came meanwhile.
//
// With `comments`, the number of comments that the page shows, a change of that number counts as
// news too: `{comments: number}`.
export const followRun = (ref, seq, onNews, comments = null) => {
  let last = seq;
  let written = comments;
  let waiting = [];
  let timer = 0;
  const show = untilShown(async () => {
    if (document.hidden || !waiting.length) return true;
    const news = waiting;
    waiting = [];
    const shown = await Promise.resolve(onNews(news)).catch(() => false);
    if (shown === false) waiting = [...news, ...waiting];
    return shown;
  });
  const flush = () => {
    timer = 0;
    show();
  };
  document.addEventListener('visibilitychange', flush);
  return new Link({
    url: () =>
      `/ws/runs/${encodeURIComponent(ref)}/?after=${last}` +
      (written === null ? '' : `&comments=${written}`),
    onMessage: (event) => {
      if ('comments' in event) written = event.comments;
      else last = event.seq;
      waiting.push(event);
      timer ||= setTimeout(flush, 250);
    },
    onPoll: () => onNews([]),
  });
};

// Watch the rows of a list. `known()` gives {id: seq}; `onMoved(ids)` gets those that moved within
// 250 ms, and again where it resolves to false.
export const followRows = (known, onMoved) => {
  let moved = new Set();
  let timer = 0;
  const show = untilShown(async () => {
    if (document.hidden || !moved.size) return true;
    const ids = [...moved];
    moved = new Set();
    const shown = await Promise.resolve(onMoved(ids)).catch(() => false);
    if (shown === false) moved = new Set([...ids, ...moved]);
    return shown;
  });
  const flush = () => {
    timer = 0;
    show();
  };
  document.addEventListener('visibilitychange', flush);
  return new Link({
    url: () => '/ws/runs/',
    onOpen: (socket) => socket.send(JSON.stringify({ watch: known() })),
    onMessage: ({ run }) => {
      moved.add(run);
      timer ||= setTimeout(flush, 250);
    },
    onPoll: () => onMoved(Object.keys(known())),
  });
};

// What the bar says: how much waits for this person, and whether a worker is there. In a hidden tab
// too: its title counts. `latestInbox()` is for scripts that are loaded after the first news came.
let latest = null;
export const latestInbox = () => latest;
export const followInbox = (onNews, onPoll) =>
  new Link({
    url: () => '/ws/reviews/',
    onMessage: (news) => {
      latest = news;
      onNews(news);
    },
    onPoll,
  });
