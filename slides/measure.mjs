// Does every slide fit its page? Looks at built decks in headless Chromium.
//
//     node measure.mjs CHROMIUM a.html b.html     prints JSON, one object a deck:
//     {"slides": [{"found": ["sentence", ...], "figures": [{"name", "px_per_pt"}, ...]}, ...],
//      "asked": [addresses outside], "lacking": [files]}
//
// Lengths are CSS pixels of a slide of 1280 x 720.

import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const [chromium, ...files] = process.argv.slice(2);
const browser = await puppeteer.launch({
  executablePath: chromium,
  args: process.env.CHROME_NO_SANDBOX ? ["--no-sandbox"] : [],
});
try {
  const decks = [];
  for (const file of files) decks.push(await look(file));
  console.log(JSON.stringify(decks));
} finally {
  await browser.close();
}

async function look(file) {
  const page = await browser.newPage();
  const [asked, lacking] = [[], []];
  page.on("request", (r) => /^(file|data|blob):/.test(r.url()) || asked.push(r.url()));
  page.on("requestfailed", (r) => /^file:/.test(r.url()) && lacking.push(r.url()));
  await page.setViewport({ width: 1280, height: 720 });
  await page.goto(pathToFileURL(file).href, { waitUntil: "load" });
  await page.evaluate(() => document.fonts.ready);
  const slides = await page.evaluate(measure);
  await page.close();
  return { slides, asked, lacking };
}

function measure() {
  const TOLERANCE = 1.5;
  const SMALLEST = { text: 18, caption: 14 }; // the size of type
  const LEAST_PICTURE = 0.18; // of the page's area
  return [...document.querySelectorAll("section[id], section[data-marpit-pagination]")].map(slide);

  function slide(section) {
    const [found, figures] = [[], []];
    const page = section.getBoundingClientRect();
    const unit = page.width / 1280;
    const box = (rect) => ({
      left: (rect.left - page.left) / unit, right: (rect.right - page.left) / unit,
      top: (rect.top - page.top) / unit, bottom: (rect.bottom - page.top) / unit,
    });
    const style = getComputedStyle(section);
    const room = {
      left: parseFloat(style.paddingLeft), right: 1280 - parseFloat(style.paddingRight),
      top: parseFloat(style.paddingTop), bottom: 720 - parseFloat(style.paddingBottom),
    };
    const blocks = [...section.children].filter((e) => !/^(FOOTER|HEADER|STYLE|SCRIPT)$/.test(e.tagName));
    for (const block of blocks) {
      const before = found.length;
      outside(box(block.getBoundingClientRect()), words(block));
      if (found.length > before) continue; // what is in it stands over the edge too
      for (const element of block.querySelectorAll("*")) {
        if (element.closest("mjx-container") && element.tagName !== "MJX-CONTAINER") continue;
        outside(box(element.getBoundingClientRect()), words(element));
      }
    }
    for (const element of [section, ...section.querySelectorAll("pre, code, table, p, div, li")]) {
      const [wide, high] = [
        element.scrollWidth - element.clientWidth, element.scrollHeight - element.clientHeight,
      ];
      if (element.clientWidth && getComputedStyle(element).display !== "inline" && (wide > 2 || high > 2))
        found.push(`${words(element)} is cut by ${Math.max(wide, high)} px.`);
    }
    const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) text(walker.currentNode);
    for (const image of section.querySelectorAll("img")) picture(image);
    for (const [n, a] of blocks.entries()) for (const b of blocks.slice(n + 1)) overlap(a, b);
    for (const h1 of section.querySelectorAll("h1")) {
      const lines = h1.getBoundingClientRect().height / unit / parseFloat(getComputedStyle(h1).lineHeight);
      const most = section.classList.contains("lead") ? 2 : 1;
      if (lines > most + 0.3) found.push(`the title takes ${Math.round(lines)} lines; ${most} at most.`);
    }
    return { found: [...new Set(found)], figures };

    function outside(at, what) {
      for (const side of ["left", "right", "top", "bottom"]) {
        const sign = side === "left" || side === "top" ? -1 : 1;
        const over = sign * (at[side] - room[side]);
        if (over > TOLERANCE) found.push(`${what} stands ${Math.round(over)} px over the ${side} edge.`);
      }
    }
    function text(node) {
      if (!node.textContent.trim() || node.parentElement.closest("style, script, section svg, mjx-container, footer")) return;
      const range = document.createRange();
      range.selectNodeContents(node);
      const quoted = JSON.stringify(node.textContent.trim().slice(0, 30));
      const size = parseFloat(getComputedStyle(node.parentElement).fontSize);
      for (const rect of range.getClientRects()) {
        const at = box(rect);
        const spare = Math.max(0, (at.bottom - at.top - size) / 2); // a typeface's own leading
        outside({ ...at, top: at.top + spare, bottom: at.bottom - spare }, quoted);
      }
      const least = node.parentElement.closest(".caption") ? SMALLEST.caption : SMALLEST.text;
      if (size < least) found.push(`${quoted} is in type of ${size} px; ${least} at least.`);
    }
    function picture(image) {
      const name = decodeURI(image.src).split("/").pop();
      if (!image.naturalWidth) return found.push(`the figure ${name} cannot be shown.`);
      const at = image.getBoundingClientRect();
      const scale = Math.min(at.width / image.naturalWidth, at.height / image.naturalHeight);
      figures.push({ name, px_per_pt: (scale / unit) * (96 / 72) });
      const area = (scale * scale * image.naturalWidth * image.naturalHeight) / (unit * unit);
      if (area < LEAST_PICTURE * 1280 * 720)
        found.push(`the figure ${name} takes ${Math.round((100 * area) / 1280 / 720)} % of the page; it is too small.`);
    }
    function overlap(a, b) {
      const [p, q] = [box(a.getBoundingClientRect()), box(b.getBoundingClientRect())];
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 2 && high > 2) found.push(`${words(a)} and ${words(b)} lie on each other.`);
    }
    function words(element) {
      const name = element.tagName.toLowerCase();
      const said = element.textContent.trim().replace(/\s+/g, " ").slice(0, 30);
      return said ? `${name} ${JSON.stringify(said)}` : name;
    }
  }
}
