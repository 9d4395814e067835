() => {
  // What a reader sees: sizes, points of charts, and the contrast of every text with what lies behind it (WCAG 2).
  document.querySelectorAll("details").forEach((details) => { details.open = true; });
  const rgb = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = rgb(colour).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((rgb(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = (element) => {
    const style = getComputedStyle(element);
    const ink = luminance(element instanceof SVGElement ? style.fill : style.color);
    const paper = luminance(behind(element));
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  };
  const written = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (walker.currentNode.data.trim()) written.add(walker.currentNode.parentElement);
  const faint = [...written].filter((element) => contrast(element) < 4.5)
    .map((element) => [element.tagName, element.textContent.slice(0, 40), contrast(element)]);
  const charts = [...document.querySelectorAll("figure.chart svg.plot")].map((svg) => {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")];
    const lines = [...svg.querySelectorAll("path")].filter((path) => path.style.stroke.includes("--series"));
    return {
      width: box.width,
      height: box.height,
      points: Math.max(0, ...lines.map((path) => (path.getAttribute("d").match(/[ML]/g) ?? []).length)),
      smallest_text: Math.min(...texts.map((text) => parseFloat(getComputedStyle(text).fontSize) * box.width / svg.viewBox.baseVal.width)),
      outside: texts.map((text) => [text.textContent, text.getBoundingClientRect()])
        .filter(([, at]) => at.left < box.left - 2 || at.right > box.right + 8 || at.top < box.top - 2 || at.bottom > box.bottom + 2)
        .map(([label]) => label),
    };
  });
  return {
    scroll_width: document.documentElement.scrollWidth,
    background: getComputedStyle(document.body).backgroundColor,
    texts: written.size,
    faint,
    charts,
  };
}
