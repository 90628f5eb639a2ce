// Every page: theme without a reload, menus that close, search by key, copying.

import { typing } from './tools.js';

const root = document.documentElement;

const setTheme = (theme) => {
  if (theme === 'auto') delete root.dataset.theme; else root.dataset.theme = theme;
  document.querySelector('meta[name=color-scheme]').content = theme === 'auto' ? 'light dark' : theme;
  for (const button of document.querySelectorAll('[data-theme-set]')) {
    button.setAttribute('aria-pressed', String(button.dataset.themeSet === theme));
  }
};

const sendTheme = (form, theme) => {
  const body = new FormData(form);
  body.set('theme', theme);
  fetch(form.action, { method: 'POST', body, headers: { 'X-Fragment': '1' } }).catch(() => form.requestSubmit());
};

const copy = async (button) => {
  await navigator.clipboard.writeText(button.dataset.copy);
  const toast = document.createElement('div');
  toast.className = 'toast';
  toast.setAttribute('role', 'status');
  toast.textContent = 'Copied';
  document.body.append(toast);
  setTimeout(() => toast.remove(), 1600);
};

document.addEventListener('click', (event) => {
  for (const menu of document.querySelectorAll('details.more[open]')) if (!menu.contains(event.target)) menu.open = false;
  const theme = event.target.closest('[data-theme-set]');
  if (theme) {
    event.preventDefault();
    setTheme(theme.dataset.themeSet);
    sendTheme(theme.form, theme.dataset.themeSet);
  }
  const copied = event.target.closest('[data-copy]');
  if (copied) copy(copied);
});

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') {
    for (const menu of document.querySelectorAll('details.more[open]')) {
      menu.open = false;
      menu.querySelector('summary').focus();
    }
  }
  if (event.key === '/' && !typing(event)) {
    const find = document.getElementById('find');
    if (find) { event.preventDefault(); find.focus(); }
  }
});
