// A page with carbonplan's zarr-layer on MapLibre; `show` draws a store and gives the pixels at which places lie.
import {ZarrLayer} from '@carbonplan/zarr-layer';
import maplibregl from 'maplibre-gl';

const EARTH = 2 * Math.PI * 6378137;

window.show = async ({url, variable, center, metresPerPixel, places, options}) => {
  const map = new maplibregl.Map({
    container: 'map',
    style: {version: 8, sources: {}, layers: []},
    center,
    zoom: Math.log2(EARTH / (512 * metresPerPixel)),
    attributionControl: false,
    fadeDuration: 0,
    pixelRatio: 1,
  });
  await new Promise((resolve) => map.once('load', resolve));
  const colormap = Array.from({length: 256}, (_, grey) => [grey, grey, grey]);
  await new Promise((resolve, reject) => {
    let begun = false;
    const layer = new ZarrLayer({
      id: 'zarr',
      source: url,
      variable,
      colormap,
      clim: [0, 255],
      ...options,
      onLoadingStateChange: ({loading, error}) => {
        if (error) reject(error);
        begun ||= loading;
        if (begun && !loading) setTimeout(resolve, 300);
      },
    });
    map.addLayer(layer);
  });
  await new Promise((resolve) => {
    map.once('idle', resolve);
    map.triggerRepaint();
  });
  return {
    pixels: places.map((place) => {
      const {x, y} = map.project(place);
      return [x, y];
    }),
  };
};
