// The page's languages. A new one needs its file, <code>.js, and a line here; `tag` is its BCP 47 tag.
// Texts that a file lacks are shown in English; a test asks that ours lack none.

export const LANGUAGES = [
  { code: 'en', tag: 'en', name: 'English' },
  { code: 'zh', tag: 'zh-Hans', name: '中文' },
  { code: 'de', tag: 'de', name: 'Deutsch' },
];
