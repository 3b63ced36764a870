// The chosen colours, before the first paint. A plain script: modules would run too late.
(() => {
  let theme = null;
  try { theme = localStorage.getItem('qwink.theme'); } catch { /* no storage: as the system */ }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
