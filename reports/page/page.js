'use strict';
// Draws the figures from the data in the page, again whenever the colours change (theme, print).
(() => {
  const root = document.documentElement;
  const shapes = ['crossRot', 'star', 'rect', 'triangle', 'rectRot', 'circle'];
  const figures = JSON.parse(document.getElementById('figure-data').textContent);
  const charts = [];
  const colour = name => getComputedStyle(root).getPropertyValue('--' + name).trim();
  const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, '0');
  const narrow = () => window.innerWidth < 600;
  const number = value => {
    const size = Math.abs(value);
    const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
    return value.toLocaleString('en-US', { maximumFractionDigits: digits });
  };
  const tick_name = (axis, value) => {
    const found = (axis.ticks || []).find(tick => tick[0] === value);
    return found ? found[1] : number(value);
  };

  // What Chart.js has no word for: ranges, limits, the end of what is possible, texts behind bars.
  const marks = {
    id: 'marks',
    beforeDatasetsDraw(chart) {
      const { figure } = chart.options;
      if (figure.kind !== 'lines') return;
      const { ctx, scales: { x, y }, chartArea: area } = chart;
      ctx.save();
      ctx.beginPath();
      ctx.rect(area.left, area.top, area.width, area.height);
      ctx.clip();
      figure.lines.forEach((line, index) => {
        const points = line.points.slice(0, line.solid).filter(p => p.length > 2);
        if (points.length < 2 || !chart.isDatasetVisible(index)) return;
        ctx.beginPath();
        points.forEach((p, i) => ctx[i ? 'lineTo' : 'moveTo'](x.getPixelForValue(p[0]), y.getPixelForValue(p[3])));
        points.slice().reverse().forEach(p => ctx.lineTo(x.getPixelForValue(p[0]), y.getPixelForValue(p[2])));
        ctx.fillStyle = faded(colour(line.colour), 0.13);
        ctx.fill();
      });
      ctx.restore();
    },
    afterDatasetsDraw(chart) {
      const { figure } = chart.options;
      const { ctx, scales: { x, y }, chartArea: area } = chart;
      ctx.save();
      ctx.font = '600 12px ' + Chart.defaults.font.family;
      const label = (text, at_x, at_y, align, ink) => {
        ctx.textAlign = align;
        ctx.lineWidth = 4;
        ctx.strokeStyle = colour('page');
        ctx.lineJoin = 'round';
        ctx.strokeText(text, at_x, at_y);
        ctx.fillStyle = ink;
        ctx.fillText(text, at_x, at_y);
      };
      const rule = (x0, y0, x1, y1, ink, dash) => {
        ctx.beginPath();
        ctx.moveTo(x0, y0);
        ctx.lineTo(x1, y1);
        ctx.setLineDash(dash);
        ctx.lineWidth = 1.6;
        ctx.strokeStyle = ink;
        ctx.stroke();
        ctx.setLineDash([]);
      };
      (figure.lines || []).forEach((line, index) => {
        if (!chart.isDatasetVisible(index)) return;
        const ink = colour(line.colour);
        if (line.ends && line.solid > 0) {
          const p = line.points[line.solid - 1];
          const at_x = x.getPixelForValue(p[0]), at_y = y.getPixelForValue(p[1]);
          ctx.lineWidth = 3.5;
          ctx.strokeStyle = ink;
          ctx.beginPath();
          ctx.moveTo(at_x, at_y - 9);
          ctx.lineTo(at_x, at_y + 9);
          ctx.stroke();
        }
        if (line.marked < line.points.length) {
          const p = line.points[line.marked];
          const at_x = x.getPixelForValue(p[0]), at_y = y.getPixelForValue(p[1]);
          ctx.beginPath();
          ctx.arc(at_x, at_y, 9, 0, 2 * Math.PI);
          ctx.lineWidth = 2;
          ctx.strokeStyle = ink;
          ctx.stroke();
          const above = at_y - 16 > area.top + 10;
          const side = at_x > area.right - 70 ? 'right' : at_x < area.left + 70 ? 'left' : 'center';
          label(line.mark_name, at_x, above ? at_y - 15 : at_y + 24, side, colour('ink'));
        }
      });
      const limits = (figure.limit ? [figure.limit] : []).concat(figure.marks || []);
      limits.forEach(limit => {
        const across = figure.kind !== 'lines';
        const at = (across ? x : y).getPixelForValue(limit[0]);
        const ink = colour(figure.kind === 'spans' ? 'ink' : 'limit');
        if (across) {
          rule(at, area.top, at, area.bottom, ink, [6, 4]);
          const right = at > (area.left + area.right) / 2;
          label(limit[1], right ? at - 5 : at + 5, area.top - 6, right ? 'right' : 'left', ink);
        } else {
          rule(area.left, at, area.right, at, ink, [6, 4]);
          label(limit[1], area.left + 6, at - 6, 'left', ink);
        }
      });
      (figure.row_texts || []).forEach((text, row) => {
        const total = figure.parts.reduce((sum, part) => sum + part.values[row], 0);
        const end = x.getPixelForValue(total);
        ctx.font = '12px ' + Chart.defaults.font.family;
        ctx.textBaseline = 'middle';
        const width = ctx.measureText(text).width;
        const inside = figure.limit || end + 8 + width > area.right + 2;
        label(text, inside ? area.right : end + 8, y.getPixelForValue(row), inside ? 'right' : 'left', colour('ink'));
      });
      ctx.restore();
    },
  };

  // Room between the legend and the figure, where limits and marks are named.
  const room = {
    id: 'room',
    beforeInit(chart) {
      const { figure } = chart.options;
      if (figure.kind === 'lines' || !(figure.limit || (figure.marks || []).length)) return;
      const fit = chart.legend.fit;
      chart.legend.fit = function () {
        fit.call(this);
        this.height += 18;
      };
    },
  };

  const scale = (axis, wide) => {
    const options = {
      type: axis.logarithmic ? 'logarithmic' : 'linear',
      title: { display: true, text: axis.title, color: colour('quiet') },
      grid: { color: colour('grid'), borderColor: colour('rule'), tickColor: colour('rule') },
      ticks: {
        color: colour('quiet'), maxRotation: 0, autoSkip: true, autoSkipPadding: 8, includeBounds: false,
        callback: value => tick_name(axis, value),
      },
    };
    if (axis.least !== undefined) options.min = axis.least;
    if (axis.most !== undefined) options.max = axis.most;
    if (axis.ticks) options.afterBuildTicks = built => { built.ticks = axis.ticks.map(tick => ({ value: tick[0] })); };
    if (!wide) options.ticks.maxTicksLimit = 6;
    return options;
  };

  const legend = (figure, used) => ({
    display: used, position: 'top', align: 'start',
    labels: {
      color: colour('ink'), usePointStyle: true, padding: narrow() ? 10 : 16, boxWidth: 9, boxHeight: 9,
      generateLabels: chart => Chart.defaults.plugins.legend.labels.generateLabels(chart).map(item => {
        const dataset = chart.data.datasets[item.datasetIndex];
        return Object.assign(item, {
          pointStyle: dataset.legend_shape, lineWidth: 2.5, lineDash: [],
          fillStyle: dataset.legend_colour, strokeStyle: dataset.legend_colour,
        });
      }),
    },
  });

  const settings = (figure, scales, used, tooltip) => ({
    figure, scales, animation: false, responsive: true, maintainAspectRatio: false,
    layout: { padding: { top: 4, right: 6 } },
    interaction: { mode: 'nearest', intersect: false, axis: figure.kind === 'lines' ? 'x' : 'xy' },
    plugins: {
      legend: legend(figure, used),
      tooltip: Object.assign({
        backgroundColor: colour('ink'), titleColor: colour('page'), bodyColor: colour('page'), padding: 10,
        usePointStyle: true, boxPadding: 4,
      }, tooltip),
    },
  });

  const builders = {
    lines(figure) {
      const datasets = figure.lines.map(line => {
        const ink = colour(line.colour);
        const shape = shapes[Number(line.colour.split('-')[1]) % shapes.length];
        return {
          label: line.name, legend_shape: shape, legend_colour: ink,
          data: line.points.map(p => ({ x: p[0], y: p[1], low: p[2], high: p[3] })),
          borderColor: ink, backgroundColor: ink, borderWidth: 2.2, pointStyle: shape, pointBorderWidth: 2,
          pointRadius: line.points.map((p, i) => i < line.solid ? 4.5 : 3), pointHoverRadius: 6,
          segment: { borderDash: context => context.p1DataIndex >= line.solid ? [3, 4] : undefined },
        };
      });
      const label = item => {
        const raw = item.raw;
        const range = raw.low === undefined ? '' : ` (${number(raw.low)} to ${number(raw.high)})`;
        const beyond = item.dataIndex >= figure.lines[item.datasetIndex].solid ? ', does not fit' : '';
        return ` ${item.dataset.label}: ${number(raw.y)}${range}${beyond}`;
      };
      return {
        type: 'line', data: { datasets },
        options: settings(figure, { x: scale(figure.x, true), y: scale(figure.y, true) }, figure.lines.length > 1, {
          callbacks: { title: items => tick_name(figure.x, items[0].raw.x), label },
        }),
      };
    },
    bars(figure) {
      const datasets = figure.parts.map(part => {
        const inks = figure.row_colours ? figure.row_colours.map(colour) : colour(part.colour);
        return {
          label: part.name, legend_shape: 'rect', legend_colour: colour(part.colour), data: part.values,
          backgroundColor: inks, borderColor: colour('page'), borderWidth: { right: 1.5 }, borderSkipped: false,
          barPercentage: 0.78, categoryPercentage: 0.9,
        };
      });
      const rows = {
        type: 'category', stacked: true, grid: { display: false, borderColor: colour('rule') },
        ticks: { color: colour('ink'), font: { size: 13 } },
      };
      const options = settings(figure, { x: Object.assign(scale(figure.x, !narrow()), { stacked: true }), y: rows },
        figure.parts.length > 1,
        { callbacks: { label: item => ` ${item.dataset.label}: ${number(item.raw)}` } });
      options.indexAxis = 'y';
      if (narrow() && figure.row_texts.length && figure.x.most) options.scales.x.max = 1.15 * figure.x.most;
      return { type: 'bar', data: { labels: figure.rows, datasets }, options };
    },
    spans(figure) {
      const datasets = figure.kinds.map((kind, index) => ({
        label: kind.name, legend_shape: 'rect', legend_colour: colour(kind.colour), grouped: false,
        data: figure.spans.filter(span => span[1] === index)
          .map(span => ({ x: [span[2], span[2] + span[3]], y: figure.rows[span[0]] })),
        backgroundColor: colour(kind.colour), borderWidth: 0, barPercentage: 0.8, categoryPercentage: 0.9, minBarLength: 1,
      }));
      const rows = {
        type: 'category', grid: { color: colour('grid'), borderColor: colour('rule') },
        ticks: { color: colour('ink'), font: { size: narrow() ? 11 : 13 } },
      };
      const options = settings(figure, { x: scale(figure.x, !narrow()), y: rows }, true, {
        callbacks: { label: item => ` ${item.dataset.label}: ${number(item.raw.x[1] - item.raw.x[0])} ${figure.unit || ''}` },
      });
      options.indexAxis = 'y';
      return { type: 'bar', data: { labels: figure.rows, datasets }, options };
    },
  };

  const draw = () => {
    charts.splice(0).forEach(chart => chart.destroy());
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.font.size = narrow() ? 11 : 12.5;
    for (const figure of figures) {
      const chart = new Chart(document.getElementById(figure.id + '-canvas'), builders[figure.kind](figure));
      charts.push(chart);
    }
  };
  Chart.register(marks, room);
  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  matchMedia('print').addEventListener('change', draw);
  matchMedia('(max-width: 599px)').addEventListener('change', draw);
})();
