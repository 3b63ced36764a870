// Applies the chosen theme before the first paint. Not a module: modules run after it.
(() => {
  let theme = null;
  try { theme = localStorage.getItem('qwink.theme'); } catch { /* no storage: the system's theme */ }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
