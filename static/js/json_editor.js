// The JSON of a patch in an editor: line numbers, folding, search, errors at their place, and the
// old lines in red above the new ones. The textarea stays what is sent, so the page works without
// it. It lives in a shadow root: there its styles are constructed sheets, which the page's
// Content-Security-Policy allows, and no style element is written.

// Cells of the table that finds which lines are the same; above it, all lines in between count as
// changed.
const MOST_CELLS = 4e6;

// The places where two lists of lines differ: at which line of the new one, which old lines are
// gone, how many are new.
const hunksOf = (old, now) => {
  let start = 0;
  let ends = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  while (
    ends < old.length - start &&
    ends < now.length - start &&
    old.at(-1 - ends) === now.at(-1 - ends)
  )
    ends += 1;
  const a = old.slice(start, old.length - ends);
  const b = now.slice(start, now.length - ends);
  if (!a.length && !b.length) return [];
  if (!a.length || !b.length || a.length * b.length > MOST_CELLS)
    return [{ at: start, gone: a, added: b.length }];
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const skipped = Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : skipped;
    }
  }
  const hunks = [];
  let hunk = null;
  const open = (j) => {
    if (!hunk) {
      hunk = { at: start + j, gone: [], added: 0 };
      hunks.push(hunk);
    }
    return hunk;
  };
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      hunk = null;
      i += 1;
      j += 1;
    } else if (
      i < a.length &&
      (j === b.length || table[(i + 1) * width + j] >= table[i * width + j + 1])
    )
      open(j).gone.push(a[i++]);
    else {
      open(j).added += 1;
      j += 1;
    }
  }
  return hunks;
};

const changesAgainst = (cm, before) => {
  class OldLines extends cm.WidgetType {
    constructor(lines) {
      super();
      this.lines = lines;
    }
    eq(other) {
      return other.lines.join('\n') === this.lines.join('\n');
    }
    toDOM() {
      const box = document.createElement('div');
      box.className = 'cm-old';
      for (const text of this.lines) {
        const line = document.createElement('div');
        line.textContent = text;
        box.append(line);
      }
      return box;
    }
  }
  const old = before.split('\n');
  const drawn = (doc) => {
    const builder = new cm.RangeSetBuilder();
    for (const { at, gone, added } of hunksOf(old, doc.toString().split('\n'))) {
      const behind = at >= doc.lines;
      const from = behind ? doc.length : doc.line(at + 1).from;
      if (gone.length)
        builder.add(
          from,
          from,
          cm.Decoration.widget({ widget: new OldLines(gone), block: true, side: behind ? 1 : -1 }),
        );
      for (let n = at + 1; n <= at + added; n += 1) {
        const line = doc.line(n);
        builder.add(line.from, line.from, cm.Decoration.line({ class: 'cm-new' }));
      }
    }
    return builder.finish();
  };
  return cm.StateField.define({
    create: (state) => drawn(state.doc),
    update: (value, change) => (change.docChanged ? drawn(change.state.doc) : value),
    provide: (field) => cm.EditorView.decorations.from(field),
  });
};

const look = (cm) => [
  cm.EditorView.theme({
    '&': {
      background: 'var(--sheet)',
      color: 'var(--ink)',
      fontSize: '.8125rem',
      maxHeight: '70vh',
    },
    '&.cm-focused': { outline: '2px solid var(--focus)', outlineOffset: '-2px' },
    '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.62' },
    '.cm-gutters': { background: 'var(--inset)', color: 'var(--ink-3)', border: '0' },
    '.cm-content': { caretColor: 'var(--sign)' },
    '.cm-cursor': { borderLeftColor: 'var(--sign)' },
    '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': {
      background: 'var(--sign-tint)',
    },
    '.cm-selectionBackground': { background: 'var(--sign-tint)' },
    '.cm-new': { background: 'var(--add-tint)' },
    '.cm-old': {
      background: 'var(--del-tint)',
      color: 'var(--del)',
      padding: '0 2px 0 6px',
      whiteSpace: 'pre',
      fontFamily: 'var(--mono)',
    },
    '.cm-panels': { background: 'var(--inset)', color: 'var(--ink)' },
    '.cm-panels input, .cm-panels button': {
      background: 'var(--sheet)',
      color: 'var(--ink)',
      border: '1px solid var(--control)',
      backgroundImage: 'none',
    },
    '.cm-tooltip': {
      background: 'var(--raised)',
      color: 'var(--ink)',
      border: '1px solid var(--rule-2)',
    },
    '.cm-searchMatch': { background: 'var(--wait-tint)', outline: '1px solid var(--wait)' },
  }),
  cm.syntaxHighlighting(
    cm.HighlightStyle.define([
      { tag: cm.tags.propertyName, color: 'light-dark(#31524A,#A5CFC0)' },
      { tag: cm.tags.string, color: 'light-dark(#6B4A12,#E3C283)' },
      { tag: [cm.tags.number, cm.tags.bool, cm.tags.null], color: 'light-dark(#114F86,#9CCBF2)' },
    ]),
  ),
];

const extensions = (cm, { label, before, onChange }) => [
  cm.lineNumbers(),
  cm.foldGutter(),
  cm.highlightSpecialChars(),
  cm.history(),
  cm.drawSelection(),
  cm.bracketMatching(),
  cm.indentOnInput(),
  cm.highlightSelectionMatches(),
  cm.search({ top: true }),
  cm.json(),
  cm.linter(cm.jsonParseLinter()),
  cm.lintGutter(),
  // No key is bound to Tab: it leaves the editor, as it leaves any field.
  cm.keymap.of([...cm.searchKeymap, ...cm.historyKeymap, ...cm.foldKeymap, ...cm.defaultKeymap]),
  cm.EditorView.contentAttributes.of({ 'aria-label': label, spellcheck: 'false' }),
  cm.EditorView.lineWrapping,
  cm.EditorView.updateListener.of((change) => {
    if (change.docChanged) onChange(change.state.doc.toString());
  }),
  changesAgainst(cm, before),
  ...look(cm),
];

// Puts an editor in the place of a textarea; where it cannot be loaded, the textarea stays.
export const editInPlace = async (area, source) => {
  if (!area || area.dataset.edited) return;
  area.dataset.edited = 'loading';
  const cm = await import(source).catch(() => null);
  if (!cm || !area.isConnected) {
    delete area.dataset.edited;
    return;
  }
  const host = document.createElement('div');
  host.className = 'json-editor';
  const root = host.attachShadow({ mode: 'open' });
  const label = document.querySelector(`label[for="${area.id}"]`);
  const before = document.getElementById('json-before')?.content.textContent ?? area.defaultValue;
  const onChange = (text) => {
    area.value = text;
    area.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const state = cm.EditorState.create({
    doc: area.value,
    extensions: extensions(cm, { label: label?.textContent.trim() ?? 'JSON', before, onChange }),
  });
  area.before(host);
  const hadFocus = document.activeElement === area;
  const view = new cm.EditorView({ state, root, parent: root });
  area.hidden = true;
  area.dataset.edited = 'yes';
  label?.addEventListener('click', () => view.focus());
  if (hadFocus) view.focus();
};
