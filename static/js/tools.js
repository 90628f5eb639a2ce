// What several scripts use. Nothing happens when it is loaded: only scripts that a page names do anything by themselves,
// for with hashed file names a module that is both named and imported would run twice.

export const announce = (text) => { document.getElementById('announce').textContent = text; };

export const typing = (event) => event.metaKey || event.ctrlKey || event.altKey
  || Boolean((event.composedPath()[0] ?? event.target).closest?.('input:not([type=radio]):not([type=checkbox]),textarea,select,[contenteditable]'));

// A person can switch the keys of all pages off; the server then says so on each.
export const shortcutsOn = () => document.body.dataset.shortcuts !== 'off';
