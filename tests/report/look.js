() => {
  // What a reader sees: sizes, charts, and the contrast of every text with what lies behind it (WCAG 2).
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
  const charts = [...document.querySelectorAll("figure.chart svg")].map((drawing) => {
    const box = drawing.getBoundingClientRect();
    return { width: box.width, height: box.height, drawn: drawing.querySelectorAll("path, use").length > 10 };
  });
  return {
    scroll_width: document.documentElement.scrollWidth,
    background: getComputedStyle(document.body).backgroundColor,
    texts: written.size,
    faint,
    charts,
  };
}
